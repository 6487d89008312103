_base_ = './deeplabv3plus_efficientnet-lite0_ce_1xb4-1k8_steel-176x176.py'
model = dict(decode_head=dict(loss_decode=_base_.margin))
