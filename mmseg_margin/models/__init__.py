"""Networks: the paper's two, and a light one with pretrained weights."""

from .coplenet import COPLEHead, COPLENet
from .efficientnet_lite import EfficientNetLite
from .seresnext import SEResNeXt, convert_timm_seresnext

__all__ = [
    'COPLEHead',
    'COPLENet',
    'EfficientNetLite',
    'SEResNeXt',
    'convert_timm_seresnext',
]
