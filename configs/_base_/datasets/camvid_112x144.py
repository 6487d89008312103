# CamVid at a little more than a third of its resolution.
_base_ = './small_pictures.py'
scale = (176, 132)
crop_size = (112, 144)
train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[2].scale = test_pipeline[1].scale = scale
train_pipeline[3].update(crop_size=crop_size, cat_max_ratio=0.75)
data_root = '{{$MMSEG_MARGIN_DATA:data}}/camvid'
train_dataloader = dict(
    dataset=dict(
        type='CamVidDataset',
        data_root=data_root,
        data_prefix=dict(img_path='train', seg_map_path='trainannot'),
        pipeline=train_pipeline,
    )
)
val_dataloader = dict(
    dataset=dict(
        type='CamVidDataset',
        data_root=data_root,
        data_prefix=dict(img_path='val', seg_map_path='valannot'),
        pipeline=test_pipeline,
    )
)
test_dataloader = val_dataloader
