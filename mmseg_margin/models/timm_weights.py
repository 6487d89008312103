"""Weights of timm's SE-ResNeXt under the names of :class:`SEResNeXt`."""

import re
from collections.abc import Mapping

from torch import Tensor

from mmseg_margin.errors import SettingError

RENAMED = (('.se.fc1.', '.se.conv1.conv.'), ('.se.fc2.', '.se.conv2.conv.'))
CLASSIFIER = re.compile(r'fc\.(weight|bias)')
BACKBONE = re.compile(
    r'(conv1|bn1'
    r'|layer[1-4]\.\d+\.(conv[1-3]|bn[1-3]|downsample\.[01]|se\.fc[12]))'
    r'\.(weight|bias|running_mean|running_var|num_batches_tracked)'
)


def convert_timm_seresnext(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename timm's tensors and drop its classifier; values are not touched.

    Raises:
        SettingError: If a name is not one of an SE-ResNeXt with a 7x7 stem.
    """
    converted = {}
    for name, tensor in state.items():
        if CLASSIFIER.fullmatch(name):
            continue
        if not BACKBONE.fullmatch(name):
            raise SettingError(
                f"'{name}' is not a tensor of timm's seresnext50_32x4d: "
                'pass the state dict of that model.'
            )
        for timm_name, own_name in RENAMED:
            name = name.replace(timm_name, own_name)
        converted[name] = tensor
    return converted
