_base_ = [
    '../_base_/models/deeplabv3plus_seresnext50-d8.py',
    '../_base_/datasets/cityscapes_800x800.py',
    'mmseg::_base_/default_runtime.py',
    '../_base_/schedules/adamw_40k.py',
    '../_base_/losses.py',
]
model = dict(
    data_preprocessor=dict(size=_base_.crop_size),
)
