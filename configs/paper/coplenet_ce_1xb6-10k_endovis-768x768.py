_base_ = [
    '../_base_/models/coplenet.py',
    '../_base_/datasets/endovis_768x768.py',
    'mmseg::_base_/default_runtime.py',
    '../_base_/schedules/adamw_10k.py',
    '../_base_/losses.py',
]
model = dict(data_preprocessor=dict(size=_base_.crop_size))
