"""Cross-entropy and focal loss with class weights that come from the data."""

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from mmseg.registry import MODELS
from torch import Tensor

from mmseg_margin.functional.settings import require
from mmseg_margin.functional.softmax import CrossEntropy

from .base import ClassWeight, PixelLoss, pixel_weights


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
    pixels, and can replace it. ``avg_non_ignore`` is not used, because with
    class weights ignored pixels are never part of the average.
    """
    weights = pixel_weights(
        label, ignore_index, reduction, class_weight, weight, avg_factor
    )
    loss = weights * F.cross_entropy(
        pred.float(), label, reduction='none', ignore_index=ignore_index
    )
    return loss if reduction == 'none' else loss.sum()


def weight_cross_entropy(loss: Any, weights: Sequence[float]) -> bool:
    """Give weights to mmseg's ``CrossEntropyLoss``, unless it has its own.

    mmseg's own function fails on ignored pixels once there are weights (in
    some versions only with ``avg_non_ignore=True``), so in this loss it is
    replaced by :func:`weighted_cross_entropy`.
    """
    ours = loss.cls_criterion is weighted_cross_entropy
    if loss.class_weight is not None and not ours:
        return False
    loss.class_weight = list(weights)
    loss.cls_criterion = weighted_cross_entropy
    return True


@MODELS.register_module()
class WeightedCrossEntropyLoss(PixelLoss):
    """Cross-entropy with class weights, given or from the statistics.

    Args:
        class_weight: See :class:`PixelLoss`, as for the rest.

    Example:
        >>> custom_imports = dict(imports=['mmseg_margin'])
        >>> custom_hooks = [dict(type='ClassStatsHook')]
        >>> model = dict(decode_head=dict(loss_decode=dict(
        ...     type='WeightedCrossEntropyLoss', class_weight='inverse')))
    """

    def objective(self) -> CrossEntropy:
        return CrossEntropy()


@MODELS.register_module()
class SoftmaxFocalLoss(PixelLoss):
    """``-(1 - p_y)^gamma log p_y``, averaged over the labelled pixels.

    mmseg's ``FocalLoss`` is a sum of sigmoids, and on the CPU it fails on
    class labels; this is the multi-class form that papers compare with.

    Args:
        gamma: How strongly easy pixels are down-weighted.
        class_weight: See :class:`PixelLoss`, as for the rest.

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
        self.gamma = gamma
        require(self, 'gamma', 'not be negative', lambda x: x >= 0)

    def objective(self) -> CrossEntropy:
        return CrossEntropy(self.gamma)
