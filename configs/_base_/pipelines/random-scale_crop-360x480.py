_base_ = './common.py'
train_size = (360, 480)
pipelines = dict(
    train=[
        dict(type='LoadImageFromFile'),
        dict(type='LoadAnnotations'),
        dict(
            type='RandomResize',
            scale=(480, 360),
            ratio_range=(0.5, 2.0),
            keep_ratio=True,
        ),
        dict(type='RandomCrop', crop_size=train_size, cat_max_ratio=0.75),
        *_base_.augment,
    ],
    test=[
        dict(type='LoadImageFromFile'),
        dict(type='LoadAnnotations'),
        dict(type='PackSegInputs'),
    ],
    tta=[dict(type='LoadImageFromFile'), _base_.views],
)
