_base_ = [
    'mmseg::deeplabv3plus/deeplabv3plus_r50-d8_4xb2-300k_mapillay_v1_65-1280x1280.py',
    '../_base_/losses.py',
]
model = dict(
    decode_head=dict(loss_decode=_base_.margin),
    auxiliary_head=dict(loss_decode=_base_.margin_auxiliary),
)
val_evaluator = dict(type='TailIoUMetric')
test_evaluator = val_evaluator
