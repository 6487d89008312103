"""Networks: the paper's two, and a light one with pretrained weights."""

from .coplenet import COPLEHead, COPLENet
from .efficientnet_lite import EfficientNetLite
from .seresnext import SEResNeXt

__all__ = [
    'COPLEHead',
    'COPLENet',
    'EfficientNetLite',
    'SEResNeXt',
]
