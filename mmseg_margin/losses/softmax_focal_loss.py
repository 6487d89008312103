"""Focal loss over the softmax, for pixels of any number of classes."""

from typing import Any

import torch
import torch.nn.functional as F
from mmseg.registry import MODELS
from torch import Tensor

from mmseg_margin.errors import SettingError

from .class_weights import ClassWeight
from .pixel_wise_loss import CROSS_ENTROPY, PixelWiseLoss


@MODELS.register_module()
class SoftmaxFocalLoss(PixelWiseLoss):
    """``-(1 - p_y)^gamma log p_y``, averaged over the labelled pixels.

    mmseg's ``FocalLoss`` is a sum of sigmoids, and on the CPU it fails on
    class labels; this is the multi-class form that papers compare with.

    Args:
        gamma: How strongly easy pixels are played down.
        class_weight: See :class:`PixelWiseLoss`, as for the rest.

    Example:
        >>> loss_decode = dict(type='SoftmaxFocalLoss', gamma=2.0)
    """

    def __init__(
        self,
        gamma: float = 2.0,
        class_weight: ClassWeight = None,
        reduction: str = 'mean',
        loss_weight: float = 1.0,
        loss_name: str = 'loss_focal',
    ) -> None:
        super().__init__(class_weight, reduction, loss_weight, loss_name)
        if not gamma >= 0:
            raise SettingError(f'gamma={gamma!r} must not be negative.')
        self.gamma = gamma

    def pixel_losses(
        self, scores: Tensor, label: Tensor, ignore_index: int
    ) -> Tensor:
        cross_entropy = F.cross_entropy(
            scores.float(),
            label,
            reduction='none',
            ignore_index=ignore_index,
        )
        p = torch.exp(-cross_entropy)
        return (1 - p) ** self.gamma * cross_entropy

    def stage_settings(self, num_classes: int) -> dict[str, Any]:
        # The softmax form's focus is on twice the probability.
        of_focus = {'focus': self.gamma, 'pos_weight': 2**-self.gamma}
        return CROSS_ENTROPY | of_focus
