# CamVid at half its resolution.
_base_ = './camvid_112x144.py'
scale = (240, 180)
crop_size = (128, 128)
train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[2].scale = test_pipeline[1].scale = scale
train_pipeline[3].crop_size = crop_size
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
