# Images are not re-scaled; testing is upstream's, at their own size.
_base_ = './common.py'
train_size = (800, 800)
pipelines = dict(
    train=[
        dict(type='LoadImageFromFile'),
        dict(type='LoadAnnotations'),
        dict(type='RandomCrop', crop_size=train_size, cat_max_ratio=0.75),
        *_base_.augment,
    ],
)
