_base_ = '../pipelines/random-scale_crop-360x480.py'
crop_size = _base_.train_size
tta_pipeline = _base_.pipelines.tta
dataset = dict(
    type='CamVidDataset', data_root='{{$MMSEG_MARGIN_DATA:data}}/camvid'
)
train_dataloader = dict(
    batch_size=8,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(
        dataset,
        data_prefix=dict(img_path='train', seg_map_path='trainannot'),
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
        data_prefix=dict(img_path='val', seg_map_path='valannot'),
        pipeline=_base_.pipelines.test,
    ),
)
test_dataloader = dict(
    one_by_one,
    dataset=dict(
        dataset,
        data_prefix=dict(img_path='test', seg_map_path='testannot'),
        pipeline=_base_.pipelines.test,
    ),
)
val_evaluator = dict(type='TailIoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator
