"""SE-ResNeXt, the backbone of the paper's street and scene experiments."""

from typing import Any

from mmseg.models.backbones.resnext import Bottleneck, ResNeXt
from mmseg.models.utils import ResLayer, SELayer
from mmseg.registry import MODELS


class SEBottleneck(Bottleneck):
    """ResNeXt bottleneck that re-weights its channels before the addition."""

    def __init__(
        self, inplanes: int, planes: int, se_ratio: int = 16, **kwargs: Any
    ) -> None:
        super().__init__(inplanes, planes, **kwargs)
        self.se = SELayer(
            planes * self.expansion,
            ratio=se_ratio,
            act_cfg=(dict(type='ReLU'), dict(type='Sigmoid')),
        )
        # The inherited forward pass runs the modules that are named here.
        self.with_plugins = True
        self.after_conv1_plugin_names: list[str] = []
        self.after_conv2_plugin_names: list[str] = []
        self.after_conv3_plugin_names = ['se']


@MODELS.register_module()
class SEResNeXt(ResNeXt):
    """ResNeXt with squeeze-and-excitation, as in timm's ``seresnext50_32x4d``.

    Args:
        depth: 50, 101 or 152.
        groups: Groups of the 3x3 convolutions.
        base_width: Channels of a group.
        se_ratio: Reduction of the squeeze-and-excitation blocks.
        kwargs: Arguments of mmseg's ``ResNeXt``; ``with_cp=True`` recomputes
            the blocks in the backward pass to save memory.

    Example:
        >>> backbone = dict(
        ...     type='SEResNeXt', depth=50, with_cp=True,
        ...     strides=(1, 2, 1, 1), dilations=(1, 1, 2, 4))  # stride 8
    """

    arch_settings = {
        depth: (SEBottleneck, blocks)
        for depth, (_, blocks) in ResNeXt.arch_settings.items()
    }

    def __init__(
        self,
        depth: int = 50,
        groups: int = 32,
        base_width: int = 4,
        se_ratio: int = 16,
        **kwargs: Any,
    ) -> None:
        self.se_ratio = se_ratio
        super().__init__(
            depth=depth, groups=groups, base_width=base_width, **kwargs
        )

    def make_res_layer(self, **kwargs: Any) -> ResLayer:
        """Pack the blocks of a stage."""
        return super().make_res_layer(se_ratio=self.se_ratio, **kwargs)
