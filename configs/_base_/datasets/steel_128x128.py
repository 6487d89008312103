# NEU-Seg: defects on hot-rolled steel, 200x200, a little smaller.
_base_ = './small_pictures.py'
scale = (144, 144)
crop_size = (128, 128)
train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[2].scale = test_pipeline[1].scale = scale
train_pipeline[3].crop_size = crop_size
dataset = dict(
    data_root='{{$MMSEG_MARGIN_DATA:data}}/steel',
    metainfo=dict(
        classes=('background', 'inclusion', 'patches', 'scratches'),
    ),
)
train_dataloader = dict(dataset=dict(dataset, pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(dataset, pipeline=test_pipeline))
test_dataloader = val_dataloader
