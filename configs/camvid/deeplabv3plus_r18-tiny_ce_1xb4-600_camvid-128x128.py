# A tiny net at half the resolution, tested on the validation split.
_base_ = [
    '../_base_/models/deeplabv3plus_r18-tiny.py',
    '../_base_/datasets/camvid_128x128.py',
    '../_base_/default_runtime.py',
    '../_base_/schedules/adamw_600.py',
    '../_base_/losses.py',
]
model = dict(
    data_preprocessor=dict(size=_base_.crop_size),
    decode_head=dict(num_classes=11),
    auxiliary_head=dict(num_classes=11),
)
