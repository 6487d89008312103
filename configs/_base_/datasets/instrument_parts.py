# The pictures are small and the machine may be as well: no workers.
data_root = 'data/instrument_parts'
scale = (192, 160)
crop_size = (128, 128)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(
        type='RandomResize',
        scale=scale,
        ratio_range=(0.8, 1.5),
        keep_ratio=True,
    ),
    dict(type='RandomCrop', crop_size=crop_size),
    dict(type='RandomFlip', prob=0.5, direction=['horizontal', 'vertical']),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=scale, keep_ratio=True),
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs'),
]
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
train_dataloader = dict(
    batch_size=4,
    num_workers=0,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(
        dataset,
        data_prefix=dict(img_path='images/train', seg_map_path='labels/train'),
        pipeline=train_pipeline,
    ),
)
in_order = dict(
    batch_size=8,
    num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=False),
)
val_dataloader = dict(
    in_order,
    dataset=dict(
        dataset,
        data_prefix=dict(img_path='images/val', seg_map_path='labels/val'),
        pipeline=test_pipeline,
    ),
)
test_dataloader = dict(
    in_order,
    dataset=dict(
        dataset,
        data_prefix=dict(img_path='images/test', seg_map_path='labels/test'),
        pipeline=test_pipeline,
    ),
)
val_evaluator = dict(type='TailIoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator
