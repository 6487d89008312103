# A minute or two of one core. AdamW, because its steps do not depend on the
# scale of the objective, which differs between those that are compared.
_base_ = './sgd_1k2.py'
max_iters = 600
optim_wrapper = dict(
    optimizer=dict(_delete_=True, type='AdamW', lr=0.01, weight_decay=0.05)
)
param_scheduler = [
    _base_.param_scheduler[0],
    dict(_base_.param_scheduler[1], end=max_iters),
]
train_cfg = dict(max_iters=max_iters, val_interval=max_iters)
default_hooks = dict(
    logger=dict(interval=50), checkpoint=dict(interval=max_iters)
)
