_base_ = ['../pipelines/random-scale_crop-360x480.py', './loaders.py']
crop_size = _base_.train_size
tta_pipeline = _base_.pipelines.tta
dataset = dict(
    type='CamVidDataset',
    data_root='{{$MMSEG_MARGIN_DATA:data}}/camvid',
    pipeline=_base_.pipelines.test,
)
train_dataloader = dict(
    batch_size=8,
    dataset=dict(
        dataset,
        data_prefix=dict(img_path='train', seg_map_path='trainannot'),
        pipeline=_base_.pipelines.train,
    ),
)
val_dataloader = dict(
    dataset=dict(
        dataset,
        data_prefix=dict(img_path='val', seg_map_path='valannot'),
    )
)
test_dataloader = dict(
    dataset=dict(
        dataset,
        data_prefix=dict(img_path='test', seg_map_path='testannot'),
    )
)
