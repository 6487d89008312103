_base_ = [
    'mmseg::_base_/datasets/cityscapes.py',
    '../pipelines/crop-800x800.py',
]
crop_size = _base_.train_size
train_dataloader = dict(
    batch_size=8, dataset=dict(pipeline=_base_.pipelines.train)
)
val_evaluator = dict(type='TailIoUMetric')
test_evaluator = val_evaluator
