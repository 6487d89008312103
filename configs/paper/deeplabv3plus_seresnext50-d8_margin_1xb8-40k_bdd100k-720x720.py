_base_ = './deeplabv3plus_seresnext50-d8_ce_1xb8-40k_bdd100k-720x720.py'
model = dict(decode_head=dict(loss_decode=_base_.margin))
load_from = (
    'work_dirs/deeplabv3plus_seresnext50-d8_ce_1xb8-40k_bdd100k-720x720/'
    'best_mIoU_checkpoint.pth'
)
