# The paper's network: one objective, hence no auxiliary head.
_base_ = 'mmseg::_base_/models/deeplabv3plus_r50-d8.py'
model = dict(
    pretrained=None,
    backbone=dict(
        _delete_=True,
        type='SEResNeXt',
        depth=50,
        strides=(1, 2, 1, 1),
        dilations=(1, 1, 2, 4),
        contract_dilation=True,
        norm_cfg=dict(type='SyncBN', requires_grad=True),
        with_cp=True,
        init_cfg=dict(
            type='Pretrained', checkpoint='pretrain/seresnext50_32x4d.pth'
        ),
    ),
    auxiliary_head=None,
)
