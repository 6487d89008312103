_base_ = './small_pictures.py'
data_root = '{{$MMSEG_MARGIN_DATA:data}}/instrument_parts'
scale = (192, 160)
crop_size = (128, 128)
train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[2].update(scale=scale, ratio_range=(0.8, 1.5))
train_pipeline[3].crop_size = crop_size
train_pipeline[4].direction = ['horizontal', 'vertical']
test_pipeline[1].scale = scale
tta_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='TestTimeAug',
        transforms=[
            [
                dict(type='Resize', scale_factor=ratio, keep_ratio=True)
                for ratio in (0.75, 1.0, 1.25)
            ],
            [
                dict(type='RandomFlip', prob=0.0, direction='horizontal'),
                dict(type='RandomFlip', prob=1.0, direction='horizontal'),
            ],
            [dict(type='LoadAnnotations')],
            [dict(type='PackSegInputs')],
        ],
    ),
]
dataset = dict(type='InstrumentPartsDataset', data_root=data_root)
train_dataloader = dict(dataset=dict(dataset, pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=8, dataset=dict(dataset, pipeline=test_pipeline)
)
test_dataloader = dict(
    batch_size=8,
    dataset=dict(
        dataset,
        data_prefix=dict(img_path='images/test', seg_map_path='labels/test'),
        pipeline=test_pipeline,
    ),
)
