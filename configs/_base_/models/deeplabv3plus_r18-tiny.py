# Three quarters of the small net's width, at stride 16: half its parameters
# and a quarter of its time.
_base_ = './deeplabv3plus_r18-small.py'
model = dict(
    backbone=dict(
        stem_channels=24,
        base_channels=24,
        strides=(1, 2, 2),
        dilations=(1, 1, 1),
    ),
    decode_head=dict(in_channels=96, channels=48, c1_in_channels=24),
    auxiliary_head=dict(in_channels=48),
)
