"""Cross-entropy with class weights that come from the data."""

from typing import Any

import torch.nn.functional as F
from mmseg.registry import MODELS
from torch import Tensor

from .averaging import pixel_shares, reduce_pixels
from .class_weights import ClassWeight
from .pixel_wise_loss import CROSS_ENTROPY, PixelWiseLoss


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
    loss = F.cross_entropy(
        pred.float(), label, reduction='none', ignore_index=ignore_index
    )
    shares = pixel_shares(
        label,
        weight,
        class_weight,
        reduction,
        avg_factor,
        ignore_index,
        avg_non_ignore=True,
    )
    return reduce_pixels(loss, shares, reduction)


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

    def __init__(
        self,
        class_weight: ClassWeight = None,
        reduction: str = 'mean',
        loss_weight: float = 1.0,
        loss_name: str = 'loss_ce',
        avg_non_ignore: bool = True,
    ) -> None:
        super().__init__(
            class_weight, reduction, loss_weight, loss_name, avg_non_ignore
        )

    def pixel_losses(
        self, scores: Tensor, label: Tensor, ignore_index: int
    ) -> Tensor:
        return F.cross_entropy(
            scores.float(),
            label,
            reduction='none',
            ignore_index=ignore_index,
        )

    def stage_settings(self, num_classes: int) -> dict[str, Any]:
        return CROSS_ENTROPY
