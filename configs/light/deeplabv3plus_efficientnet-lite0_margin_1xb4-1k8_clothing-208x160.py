_base_ = './deeplabv3plus_efficientnet-lite0_ce_1xb4-1k8_clothing-208x160.py'
model = dict(decode_head=dict(loss_decode=_base_.margin))
