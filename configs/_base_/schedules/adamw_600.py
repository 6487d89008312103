# A minute or two of one core, from scratch. AdamW, because its steps do not
# depend on the scale of the objective, which differs between those that are
# compared.
max_iters = 600
warmup = 50
randomness = dict(seed=0)
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=0.01, weight_decay=0.05),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.1, end=warmup, by_epoch=False),
    dict(
        type='PolyLR',
        power=0.9,
        eta_min=0.0,
        begin=warmup,
        end=max_iters,
        by_epoch=False,
    ),
]
train_cfg = dict(
    type='IterBasedTrainLoop', max_iters=max_iters, val_interval=max_iters
)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
default_hooks = dict(
    timer=dict(type='IterTimerHook'),
    logger=dict(type='LoggerHook', interval=50, log_metric_by_epoch=False),
    param_scheduler=dict(type='ParamSchedulerHook'),
    checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=max_iters),
    sampler_seed=dict(type='DistSamplerSeedHook'),
    visualization=dict(type='SegVisualizationHook'),
)
