_base_ = './common.py'
train_size = (384, 384)
resize = dict(type='ResizeShortestEdge', scale=400, max_size=2048)
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
