# 50 epochs of 200 iterations. The authors' command stops there, a fifth of
# the way through the 50,000 iterations over which its learning rate decays.
_base_ = './adamw_40k.py'
param_scheduler = [
    dict(type='PolyLR', power=0.9, eta_min=0.0, end=50000, by_epoch=False)
]
train_cfg = dict(max_iters=10000, val_interval=1000)
