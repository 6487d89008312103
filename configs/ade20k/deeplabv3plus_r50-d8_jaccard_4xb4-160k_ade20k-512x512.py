_base_ = [
    'mmseg::deeplabv3plus/deeplabv3plus_r50-d8_4xb4-160k_ade20k-512x512.py',
    '../_base_/losses.py',
]
model = dict(
    decode_head=dict(loss_decode=_base_.jaccard),
    auxiliary_head=dict(loss_decode=_base_.jaccard_auxiliary),
)
val_evaluator = dict(type='TailIoUMetric')
test_evaluator = val_evaluator
