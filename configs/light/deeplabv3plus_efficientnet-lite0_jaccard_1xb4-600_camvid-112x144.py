_base_ = './deeplabv3plus_efficientnet-lite0_ce_1xb4-600_camvid-112x144.py'
model = dict(decode_head=dict(loss_decode=_base_.jaccard))
