# Three to five minutes of one core, from pretrained weights.
_base_ = './adamw_600.py'
optim_wrapper = dict(optimizer=dict(lr=0.001, weight_decay=0.01))
