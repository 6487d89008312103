_base_ = [
    '../_base_/models/deeplabv3plus_efficientnet-lite0.py',
    '../_base_/datasets/instrument_parts_112x128.py',
    '../_base_/default_runtime.py',
    '../_base_/schedules/pretrained_300.py',
    '../_base_/losses.py',
]
model = dict(
    data_preprocessor=dict(size=_base_.crop_size),
    decode_head=dict(num_classes=5),
)
