"""SE-ResNeXt, the backbone of the paper's street and scene experiments."""

import re
from collections.abc import Mapping
from typing import Any

from mmseg.models.backbones.resnext import Bottleneck, ResNeXt
from mmseg.models.utils import ResLayer, SELayer
from mmseg.registry import MODELS
from torch import Tensor

from mmseg_margin.errors import SettingError

# timm's names of the tensors, and the parts of them that differ here.
TIMM_CLASSIFIER = re.compile(r'fc\.(weight|bias)')
TIMM_BACKBONE = re.compile(
    r'(conv1|bn1'
    r'|layer[1-4]\.\d+\.(conv[1-3]|bn[1-3]|downsample\.[01]|se\.fc[12]))'
    r'\.(weight|bias|running_mean|running_var|num_batches_tracked)'
)
RENAMED = (('.se.fc1.', '.se.conv1.conv.'), ('.se.fc2.', '.se.conv2.conv.'))


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


def convert_timm_seresnext(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of timm's SE-ResNeXt under the names of :class:`SEResNeXt`.

    The classifier is dropped; the tensors are passed on unchanged.

    Raises:
        SettingError: If a name is not one of an SE-ResNeXt with a 7x7 stem.
    """
    converted = {}
    for name, tensor in state.items():
        if TIMM_CLASSIFIER.fullmatch(name):
            continue
        if not TIMM_BACKBONE.fullmatch(name):
            raise SettingError(
                f"'{name}' is not a tensor of timm's seresnext50_32x4d: "
                'pass the state dict of that model.'
            )
        for timm_name, own_name in RENAMED:
            name = name.replace(timm_name, own_name)
        converted[name] = tensor
    return converted
