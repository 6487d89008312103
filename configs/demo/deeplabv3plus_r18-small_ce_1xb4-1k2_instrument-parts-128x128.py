_base_ = [
    '../_base_/models/deeplabv3plus_r18-small.py',
    '../_base_/datasets/instrument_parts.py',
    '../_base_/default_runtime.py',
    '../_base_/schedules/sgd_1k2.py',
    '../_base_/losses.py',
]
model = dict(data_preprocessor=dict(size=_base_.crop_size))
