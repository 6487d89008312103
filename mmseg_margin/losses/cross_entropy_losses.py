"""Cross-entropy and focal loss with class weights that come from the data."""

from typing import Any

import torch
import torch.nn.functional as F
from mmseg.registry import MODELS
from torch import Tensor

from mmseg_margin.errors import SettingError

from .averaging import pixel_shares
from .class_weights import ClassWeight
from .pixel_wise_loss import PixelWiseLoss

# Cross-entropy as a limit of the softmax form. It needs no compiler to be
# fast enough.
CROSS_ENTROPY = {
    'rho_0k': 0.0,
    'rho_k0': 0.0,
    'form': 'softmax',
    'log_base': 'e',
    'backend': 'eager',
}


def weighted_cross_entropy(
    pred: Tensor,
    label: Tensor,
    weight: Tensor | None = None,
    class_weight: Tensor | None = None,
    reduction: str = 'mean',
    avg_factor: float | Tensor | None = None,
    ignore_index: int = 255,
    avg_non_ignore: bool = True,
) -> Tensor:
    """Cross-entropy, averaged over the class weights of labelled pixels.

    It has the arguments of mmseg's ``cross_entropy``, which fails on ignored
    pixels, and can stand in for it. ``avg_non_ignore`` is not used: with
    class weights ignored pixels are never part of the average.
    """
    shares = pixel_shares(
        label, ignore_index, reduction, class_weight, weight, avg_factor
    )
    loss = shares.of_each() * _cross_entropy(pred, label, ignore_index)
    return loss if reduction == 'none' else loss.sum()


def _cross_entropy(scores: Tensor, label: Tensor, ignore_index: int) -> Tensor:
    return F.cross_entropy(
        scores.float(), label, reduction='none', ignore_index=ignore_index
    )


@MODELS.register_module()
class WeightedCrossEntropyLoss(PixelWiseLoss):
    """Cross-entropy with given class weights, or with the data set's own.

    Args:
        class_weight: See :class:`PixelWiseLoss`, as for the rest.

    Example:
        >>> custom_imports = dict(imports=['mmseg_margin'])
        >>> custom_hooks = [dict(type='ClassStatsHook')]
        >>> model = dict(decode_head=dict(loss_decode=dict(
        ...     type='WeightedCrossEntropyLoss', class_weight='inverse')))
    """

    def pixel_losses(
        self,
        scores: Tensor,
        label: Tensor,
        ignore_index: int,
        pixel_weight: Tensor | float,
    ) -> Tensor:
        return pixel_weight * _cross_entropy(scores, label, ignore_index)

    def stage_settings(self, num_classes: int) -> dict[str, Any]:
        return CROSS_ENTROPY


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
        self,
        scores: Tensor,
        label: Tensor,
        ignore_index: int,
        pixel_weight: Tensor | float,
    ) -> Tensor:
        cross_entropy = _cross_entropy(scores, label, ignore_index)
        p = torch.exp(-cross_entropy)
        return pixel_weight * (1 - p) ** self.gamma * cross_entropy

    def stage_settings(self, num_classes: int) -> dict[str, Any]:
        # The softmax form's focus is on twice the probability.
        of_focus = {'focus': self.gamma, 'pos_weight': 2**-self.gamma}
        return CROSS_ENTROPY | of_focus
