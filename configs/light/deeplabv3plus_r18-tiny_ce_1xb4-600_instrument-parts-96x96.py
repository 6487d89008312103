_base_ = [
    '../_base_/models/deeplabv3plus_r18-tiny.py',
    '../_base_/datasets/instrument_parts.py',
    '../_base_/default_runtime.py',
    '../_base_/schedules/adamw_600.py',
    '../_base_/losses.py',
]
crop_size = (96, 96)
train_pipeline = _base_.train_pipeline
train_pipeline[3] = dict(type='RandomCrop', crop_size=crop_size)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
model = dict(data_preprocessor=dict(size=crop_size))
