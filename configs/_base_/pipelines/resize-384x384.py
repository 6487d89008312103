_base_ = './common.py'
train_size = (384, 384)
resize = dict(type='Resize', scale=train_size, keep_ratio=False)
pipelines = dict(
    train=[
        dict(type='LoadImageFromFile'),
        dict(type='LoadAnnotations'),
        resize,
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
