# AdamW with poly decay and mixed precision, as in the paper.
_base_ = 'mmseg::_base_/schedules/schedule_40k.py'
optimizer = dict(_delete_=True, type='AdamW', lr=1e-4, weight_decay=5e-4)
optim_wrapper = dict(
    type='AmpOptimWrapper', optimizer=optimizer, loss_scale='dynamic'
)
param_scheduler = [
    dict(type='PolyLR', power=0.9, eta_min=0.0, end=40000, by_epoch=False)
]
# The best checkpoint under a name that does not depend on the iteration, so
# that the second stage can start from it.
default_hooks = dict(
    best=dict(
        type='CheckpointHook',
        by_epoch=False,
        interval=-1,
        save_best='mIoU',
        save_last=False,
        filename_tmpl='checkpoint.pth',
    )
)
