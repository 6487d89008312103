_base_ = './common.py'
train_size = (720, 720)
resize = dict(type='Resize', scale=(1280, 720), keep_ratio=False)
pipelines = dict(
    train=[
        dict(type='LoadImageFromFile'),
        dict(type='LoadAnnotations'),
        resize,
        dict(type='RandomCrop', crop_size=train_size, cat_max_ratio=0.75),
        *_base_.augment,
    ],
    test=[
        dict(type='LoadImageFromFile'),
        resize,
        dict(type='LoadAnnotations'),
        dict(type='PackSegInputs'),
    ],
    tta=[dict(type='LoadImageFromFile'), resize, _base_.views],
)
