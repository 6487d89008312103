_base_ = [
    'mmseg::_base_/models/deeplabv3plus_r50-d8.py',
    '../_base_/datasets/camvid.py',
    'mmseg::_base_/default_runtime.py',
    'mmseg::_base_/schedules/schedule_20k.py',
    '../_base_/losses.py',
]
model = dict(
    data_preprocessor=dict(size=_base_.crop_size),
    decode_head=dict(num_classes=11, loss_decode=_base_.margin),
    auxiliary_head=dict(num_classes=11, loss_decode=_base_.margin_auxiliary),
)
