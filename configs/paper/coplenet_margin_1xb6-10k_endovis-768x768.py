_base_ = './coplenet_ce_1xb6-10k_endovis-768x768.py'
model = dict(decode_head=dict(loss_decode=_base_.margin))
load_from = (
    'work_dirs/coplenet_ce_1xb6-10k_endovis-768x768/best_mIoU_checkpoint.pth'
)
