_base_ = [
    'mmseg::_base_/datasets/mapillary_v1.py',
    '../pipelines/resize-1280x720_crop-720x720.py',
]
crop_size = _base_.train_size
tta_pipeline = _base_.pipelines.tta
train_dataloader = dict(
    batch_size=8, dataset=dict(pipeline=_base_.pipelines.train)
)
val_dataloader = dict(dataset=dict(pipeline=_base_.pipelines.test))
test_dataloader = val_dataloader
val_evaluator = dict(type='TailIoUMetric')
test_evaluator = val_evaluator
