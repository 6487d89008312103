"""COPLE-Net, the network of the paper's Robotic Instrument experiment.

A U-Net of five levels (Wang et al., IEEE TMI 2020) with the group norms and
widths of the authors' code. The classifier, a 3x3 convolution, is
:class:`COPLEHead`.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from mmengine.model import BaseModule
from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from mmseg.registry import MODELS
from torch import Tensor, nn

from mmseg_margin.errors import SettingError

from .coplenet_blocks import ASPP, ConvBlock, DownBlock, UpBlock


@MODELS.register_module()
class COPLENet(BaseModule):
    """COPLE-Net up to its classifier: (N, C, H, W) to [(N, widths[0], H, W)].

    Args:
        in_channels: Channels of the image.
        widths: Channels of the levels, each twice the one before.
        dropout: Dropout ratio of the levels, the same down and up.
        with_cp: Recompute the blocks in the backward pass to save memory.
        init_cfg: Initialisation, see mmengine.

    Example:
        >>> model = dict(
        ...     type='EncoderDecoder',
        ...     backbone=dict(type='COPLENet'),
        ...     decode_head=dict(type='COPLEHead', num_classes=5))
    """

    def __init__(
        self,
        in_channels: int = 3,
        widths: Sequence[int] = (16, 32, 64, 128, 256),
        dropout: Sequence[float] = (0.0, 0.0, 0.3, 0.4, 0.5),
        with_cp: bool = False,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        if len(dropout) != len(widths):
            raise SettingError(
                f'dropout={dropout} needs one ratio for each of the '
                f'{len(widths)} levels of widths={widths}.'
            )
        levels = list(pairwise(widths))
        if any(deep != 2 * width for width, deep in levels):
            raise SettingError(
                f'widths={widths} must double at every level, because pooled '
                'maxima and averages are concatenated.'
            )
        self.stem = ConvBlock(in_channels, widths[0], dropout[0], with_cp)
        self.down = nn.ModuleList(
            DownBlock(width, deep, ratio, with_cp)
            for (width, deep), ratio in zip(levels, dropout[1:], strict=True)
        )
        self.aspp = ASPP(widths[-1])
        self.up = nn.ModuleList(
            UpBlock(deep, width, ratio, with_cp)
            for (width, deep), ratio in zip(levels, dropout[:-1], strict=True)
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        skips = [self.stem(x)]
        for down in self.down:
            skips.append(down(skips[-1]))
        x = self.aspp(skips.pop())
        for up in reversed(self.up):
            x = up(x, skips.pop())
        return [x]


@MODELS.register_module()
class COPLEHead(BaseDecodeHead):
    """COPLE-Net's classifier, one 3x3 convolution; see :class:`COPLENet`."""

    def __init__(
        self,
        in_channels: int = 16,
        in_index: int = 0,
        dropout_ratio: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            in_channels,
            channels=in_channels,
            in_index=in_index,
            dropout_ratio=dropout_ratio,
            **kwargs,
        )
        self.conv_seg = nn.Conv2d(in_channels, self.out_channels, 3, padding=1)

    def forward(self, inputs: list[Tensor]) -> Tensor:
        return self.cls_seg(self._transform_inputs(inputs))
