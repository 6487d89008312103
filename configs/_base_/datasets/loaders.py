# Three splits in loaders with workers; batches and data sets are added to it.
train_dataloader = dict(
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='TailIoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator
