# NEU-Seg: defects on hot-rolled steel, 200x200.
_base_ = './small_pictures.py'
crop_size = (176, 176)
train_pipeline = _base_.train_pipeline
train_pipeline[3].crop_size = crop_size
dataset = dict(
    data_root='{{$MMSEG_MARGIN_DATA:data}}/steel',
    metainfo=dict(
        classes=('background', 'inclusion', 'patches', 'scratches'),
    ),
)
train_dataloader = dict(dataset=dict(dataset, pipeline=train_pipeline))
val_dataloader = dict(dataset=dataset)
test_dataloader = dict(dataset=dataset)
