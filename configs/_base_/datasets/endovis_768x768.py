_base_ = '../pipelines/resize-768x768.py'
crop_size = _base_.train_size
tta_pipeline = _base_.pipelines.tta
dataset = dict(
    type='EndoVisPartsDataset',
    data_root='{{$MMSEG_MARGIN_DATA:data}}/endovis2017',
)
train_dataloader = dict(
    batch_size=6,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(
        dataset,
        data_prefix=dict(img_path='images/train', seg_map_path='labels/train'),
        pipeline=_base_.pipelines.train,
    ),
)
one_by_one = dict(
    batch_size=1,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
)
val_dataloader = dict(
    one_by_one,
    dataset=dict(
        dataset,
        data_prefix=dict(img_path='images/val', seg_map_path='labels/val'),
        pipeline=_base_.pipelines.test,
    ),
)
test_dataloader = dict(
    one_by_one,
    dataset=dict(
        dataset,
        data_prefix=dict(img_path='images/test', seg_map_path='labels/test'),
        pipeline=_base_.pipelines.test,
    ),
)
val_evaluator = dict(type='TailIoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator
