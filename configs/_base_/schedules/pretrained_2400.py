# Eight times as long: cross-entropy has nearly stopped gaining.
_base_ = './pretrained_600.py'
max_iters = 2400
param_scheduler = [
    _base_.param_scheduler[0],
    dict(_base_.param_scheduler[1], end=max_iters),
]
train_cfg = dict(max_iters=max_iters, val_interval=max_iters // 3)
default_hooks = dict(checkpoint=dict(interval=max_iters))
