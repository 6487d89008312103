_base_ = './deeplabv3plus_efficientnet-lite0_ce_1xb4-600_clothing-144x112.py'
# With the default tau the rarest class would have an offset of 512, and five
# classes are absent.
margin = dict(_base_.margin, largest_offset=0.4, absent_class='zero')
model = dict(decode_head=dict(loss_decode=margin))
