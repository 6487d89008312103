_base_ = [
    'mmseg::deeplabv3plus/deeplabv3plus_r50-d8_4xb2-80k_cityscapes-512x1024.py',
    '../_base_/losses.py',
]
model = dict(
    decode_head=dict(loss_decode=_base_.margin),
    auxiliary_head=dict(loss_decode=_base_.margin_auxiliary),
)
val_evaluator = dict(type='TailIoUMetric')
test_evaluator = val_evaluator
