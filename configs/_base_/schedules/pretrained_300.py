# About a minute of one core, from pretrained weights. Of the learning rates
# tried, this one suits cross-entropy best (docs/results).
_base_ = './adamw_600.py'
max_iters = 300
optim_wrapper = dict(
    optimizer=dict(lr=0.001, weight_decay=0.01),
    paramwise_cfg=dict(custom_keys=dict(decode_head=dict(lr_mult=10.0))),
)
param_scheduler = [
    _base_.param_scheduler[0],
    dict(_base_.param_scheduler[1], end=max_iters),
]
train_cfg = dict(max_iters=max_iters, val_interval=max_iters)
default_hooks = dict(checkpoint=dict(interval=max_iters))
