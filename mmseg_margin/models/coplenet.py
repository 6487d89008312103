"""COPLE-Net, the network of the paper's Robotic Instrument experiment.

A U-Net of five levels (Wang et al., IEEE TMI 2020) with the group norms and
widths of the authors' code. The classifier, a 3x3 convolution, is
:class:`COPLEHead`.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from mmcv.cnn import ConvModule
from mmengine.model import BaseModule
from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from mmseg.models.utils import SELayer, resize
from mmseg.registry import MODELS
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mmseg_margin.errors import SettingError

ASPP_DILATIONS = (1, 2, 4, 6)


# Convolution, group norm and leaky ReLU at constant resolution. The bias is
# needed, because a group norm subtracts one mean for all channels of a group.
conv_unit = functools.partial(
    ConvModule,
    padding='same',
    bias=True,
    norm_cfg=dict(type='GN', num_groups=4),
    act_cfg=dict(type='LeakyReLU'),
)


class ConvBlock(nn.Module):
    """Two convolutions around a dropout, then residual channel weights."""

    def __init__(
        self, in_channels: int, channels: int, dropout: float
    ) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            conv_unit(in_channels, channels, 3),
            nn.Dropout(dropout),
            conv_unit(channels, channels, 3),
        )
        self.se = SELayer(
            channels,
            ratio=2,
            act_cfg=(dict(type='LeakyReLU'), dict(type='ReLU')),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.convs(x)
        return x + self.se(x)


class DownBlock(nn.Module):
    """Halve the resolution by max- and average-pooling, concatenated."""

    def __init__(self, channels: int, dropout: float) -> None:
        super().__init__()
        self.block = ConvBlock(channels, channels, dropout)

    def forward(self, x: Tensor) -> Tensor:
        pooled = torch.cat([F.max_pool2d(x, 2), F.avg_pool2d(x, 2)], dim=1)
        return pooled + self.block(pooled)


class UpBlock(nn.Module):
    """Bilinear up-sampling to the size of the bridged skip."""

    def __init__(self, channels: int, dropout: float) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(2 * channels, channels // 2, 1)
        self.bridge = conv_unit(channels, channels // 2, 1)
        self.block = ConvBlock(channels, channels, dropout)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        skip = self.bridge(skip)
        size, mode = skip.shape[2:], 'bilinear'
        x = resize(self.reduce(x), size, mode=mode, align_corners=True)
        joined = torch.cat([skip, x], dim=1)
        return joined + self.block(joined)


class ASPP(nn.Module):
    """Parallel dilated convolutions, fused by a 1x1 convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Conv2d(
                channels,
                channels // len(ASPP_DILATIONS),
                # Dilation has no effect on a 1x1 kernel.
                1 if dilation == 1 else 3,
                dilation=dilation,
                padding='same',
            )
            for dilation in ASPP_DILATIONS
        )
        self.fuse = conv_unit(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.fuse(torch.cat([conv(x) for conv in self.branches], dim=1))


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
        self.with_cp = with_cp
        if len(dropout) != len(widths):
            raise SettingError(
                f'dropout={dropout} needs one ratio for each of the '
                f'{len(widths)} levels of widths={widths}.'
            )
        self.stem = ConvBlock(in_channels, widths[0], dropout[0])
        self.down = nn.ModuleList(map(DownBlock, widths[1:], dropout[1:]))
        self.aspp = ASPP(widths[-1])
        self.up = nn.ModuleList(map(UpBlock, widths[:-1], dropout[:-1]))

    def forward(self, x: Tensor) -> list[Tensor]:
        skips = [self._run(self.stem, x)]
        for down in self.down:
            skips.append(self._run(down, skips[-1]))
        x = self.aspp(skips.pop())
        for up in reversed(self.up):
            x = self._run(up, x, skips.pop())
        return [x]

    def _run(self, block: nn.Module, *inputs: Tensor) -> Tensor:
        if self.with_cp and torch.is_grad_enabled():
            return checkpoint(block, *inputs, use_reentrant=False)
        return block(*inputs)


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
