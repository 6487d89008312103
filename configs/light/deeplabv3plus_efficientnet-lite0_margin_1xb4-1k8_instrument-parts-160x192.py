_base_ = (
    './deeplabv3plus_efficientnet-lite0_ce_1xb4-1k8_'
    'instrument-parts-160x192.py'
)
model = dict(decode_head=dict(loss_decode=_base_.margin))
