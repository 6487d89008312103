"""The blocks of COPLE-Net, with the group norms of the authors' code."""

import torch
import torch.nn.functional as F
from mmcv.cnn import ConvModule
from mmseg.models.utils import SELayer, resize
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

ASPP_DILATIONS = (1, 2, 4, 6)


def conv_unit(in_channels: int, channels: int, kernel: int) -> ConvModule:
    """Convolution, group norm and leaky ReLU at constant resolution."""
    return ConvModule(
        in_channels,
        channels,
        kernel,
        padding=kernel // 2,
        # Not redundant: a group norm subtracts one mean for several channels.
        bias=True,
        norm_cfg=dict(type='GN', num_groups=4),
        act_cfg=dict(type='LeakyReLU'),
    )


class ConvBlock(nn.Module):
    """Two convolutions around a dropout, then residual channel weights."""

    def __init__(
        self, in_channels: int, channels: int, dropout: float, with_cp: bool
    ) -> None:
        super().__init__()
        self.with_cp = with_cp
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
        if self.with_cp and torch.is_grad_enabled():
            return checkpoint(self._forward, x, use_reentrant=False)
        return self._forward(x)

    def _forward(self, x: Tensor) -> Tensor:
        x = self.convs(x)
        return x + self.se(x)


class DownBlock(nn.Module):
    """Halve the resolution by max- and average-pooling, concatenated."""

    def __init__(
        self, in_channels: int, channels: int, dropout: float, with_cp: bool
    ) -> None:
        super().__init__()
        self.block = ConvBlock(2 * in_channels, channels, dropout, with_cp)

    def forward(self, x: Tensor) -> Tensor:
        pooled = torch.cat([F.max_pool2d(x, 2), F.avg_pool2d(x, 2)], dim=1)
        return pooled + self.block(pooled)


class UpBlock(nn.Module):
    """Bilinear up-sampling to the size of the bridged skip."""

    def __init__(
        self, in_channels: int, channels: int, dropout: float, with_cp: bool
    ) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(in_channels, channels // 2, 1)
        self.bridge = conv_unit(channels, channels // 2, 1)
        self.block = ConvBlock(channels, channels, dropout, with_cp)

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
                # A dilated 1x1 kernel is no different from a plain one.
                1 if dilation == 1 else 3,
                dilation=dilation,
                padding=0 if dilation == 1 else dilation,
            )
            for dilation in ASPP_DILATIONS
        )
        self.fuse = conv_unit(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.fuse(torch.cat([conv(x) for conv in self.branches], dim=1))
