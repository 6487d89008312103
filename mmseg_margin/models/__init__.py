"""The paper's two networks, registered with mmseg."""

from .coplenet import COPLEHead, COPLENet
from .seresnext import SEResNeXt
from .timm_weights import convert_timm_seresnext

__all__ = ['COPLEHead', 'COPLENet', 'SEResNeXt', 'convert_timm_seresnext']
