_base_ = './deeplabv3plus_efficientnet-lite0_ce_1xb4-600_steel-128x128.py'
model = dict(decode_head=dict(loss_decode=_base_.jaccard))
