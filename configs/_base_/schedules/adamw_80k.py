_base_ = './adamw_40k.py'
param_scheduler = [
    dict(type='PolyLR', power=0.9, eta_min=0.0, end=80000, by_epoch=False)
]
train_cfg = dict(max_iters=80000, val_interval=8000)
