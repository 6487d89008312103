_base_ = [
    'mmseg::_base_/datasets/pascal_voc12_aug.py',
    '../pipelines/short-400_crop-384x384.py',
]
crop_size = _base_.train_size
tta_pipeline = _base_.pipelines.tta
train_dataloader = dict(
    batch_size=16,
    dataset=dict(
        datasets=[
            dict(_base_.dataset_train, pipeline=_base_.pipelines.train),
            dict(_base_.dataset_aug, pipeline=_base_.pipelines.train),
        ]
    ),
)
val_dataloader = dict(dataset=dict(pipeline=_base_.pipelines.test))
test_dataloader = val_dataloader
val_evaluator = dict(type='TailIoUMetric')
test_evaluator = val_evaluator
