_base_ = './deeplabv3plus_seresnext50-d8_ce_1xb16-40k_coco-stuff10k-384x384.py'
model = dict(decode_head=dict(loss_decode=_base_.margin))
load_from = (
    'work_dirs/deeplabv3plus_seresnext50-d8_ce_1xb16-40k_coco-stuff10k-384x384/'
    'best_mIoU_checkpoint.pth'
)
