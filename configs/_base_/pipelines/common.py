# What the paper's pipelines share: the end of the training pipeline, and the
# views of testing with flips and several scales.
augment = [
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]
views = dict(
    type='TestTimeAug',
    transforms=[
        [
            dict(type='Resize', scale_factor=ratio, keep_ratio=True)
            for ratio in (0.5, 0.75, 1.0, 1.25, 1.5, 1.75)
        ],
        [
            dict(type='RandomFlip', prob=0.0, direction='horizontal'),
            dict(type='RandomFlip', prob=1.0, direction='horizontal'),
        ],
        [dict(type='LoadAnnotations')],
        [dict(type='PackSegInputs')],
    ],
)
