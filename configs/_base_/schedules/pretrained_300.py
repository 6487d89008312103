# About a minute of one core, from pretrained weights.
_base_ = './adamw_600.py'
max_iters = 300
optim_wrapper = dict(optimizer=dict(lr=0.001, weight_decay=0.01))
param_scheduler = [
    _base_.param_scheduler[0],
    dict(_base_.param_scheduler[1], end=max_iters),
]
train_cfg = dict(max_iters=max_iters, val_interval=max_iters)
default_hooks = dict(checkpoint=dict(interval=max_iters))
