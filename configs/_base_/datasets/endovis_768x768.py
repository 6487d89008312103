_base_ = ['../pipelines/resize-768x768.py', './loaders.py']
crop_size = _base_.train_size
tta_pipeline = _base_.pipelines.tta
dataset = dict(
    type='EndoVisPartsDataset',
    data_root='{{$MMSEG_MARGIN_DATA:data}}/endovis2017',
    pipeline=_base_.pipelines.test,
)
train_dataloader = dict(
    batch_size=6,
    dataset=dict(
        dataset,
        data_prefix=dict(img_path='images/train', seg_map_path='labels/train'),
        pipeline=_base_.pipelines.train,
    ),
)
val_dataloader = dict(
    dataset=dict(
        dataset,
        data_prefix=dict(img_path='images/val', seg_map_path='labels/val'),
    )
)
test_dataloader = dict(
    dataset=dict(
        dataset,
        data_prefix=dict(img_path='images/test', seg_map_path='labels/test'),
    )
)
