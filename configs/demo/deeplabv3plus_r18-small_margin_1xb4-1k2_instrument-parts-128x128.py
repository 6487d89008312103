_base_ = './deeplabv3plus_r18-small_ce_1xb4-1k2_instrument-parts-128x128.py'
model = dict(
    decode_head=dict(loss_decode=_base_.margin),
    auxiliary_head=dict(loss_decode=_base_.margin_auxiliary),
)
