_base_ = './instrument_parts.py'
crop_size = (112, 128)
train_pipeline = _base_.train_pipeline
train_pipeline[3].crop_size = crop_size
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
