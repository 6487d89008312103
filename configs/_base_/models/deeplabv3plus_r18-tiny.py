# DeepLabV3+ on the first three stages of a ResNet-18 of three eighths of the
# width, at stride 16: half a million parameters, trained from scratch on a
# CPU.
norm_cfg = dict(type='BN', requires_grad=True)
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_val=0,
        seg_pad_val=255,
    ),
    backbone=dict(
        type='ResNetV1c',
        depth=18,
        stem_channels=24,
        base_channels=24,
        num_stages=3,
        out_indices=(0, 1, 2),
        dilations=(1, 1, 1),
        strides=(1, 2, 2),
        norm_cfg=norm_cfg,
        norm_eval=False,
        style='pytorch',
        contract_dilation=True,
    ),
    decode_head=dict(
        type='DepthwiseSeparableASPPHead',
        in_channels=96,
        in_index=2,
        channels=48,
        dilations=(1, 3, 6, 9),
        c1_in_channels=24,
        c1_channels=24,
        dropout_ratio=0.0,
        num_classes=5,
        norm_cfg=norm_cfg,
        align_corners=False,
        loss_decode=dict(
            type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0
        ),
    ),
    auxiliary_head=dict(
        type='FCNHead',
        in_channels=48,
        in_index=1,
        channels=32,
        num_convs=1,
        concat_input=False,
        dropout_ratio=0.0,
        num_classes=5,
        norm_cfg=norm_cfg,
        align_corners=False,
        loss_decode=dict(
            type='CrossEntropyLoss', use_sigmoid=False, loss_weight=0.4
        ),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'),
)
