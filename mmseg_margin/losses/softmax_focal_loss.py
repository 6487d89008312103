"""Focal loss over the softmax, for pixels of any number of classes."""

import torch
import torch.nn.functional as F
from mmseg.registry import MODELS
from torch import Tensor, nn

from .pixels import reduce_pixels


@MODELS.register_module()
class SoftmaxFocalLoss(nn.Module):
    """``-(1 - p_y)^gamma log p_y``, averaged over the labelled pixels.

    mmseg's ``FocalLoss`` is a sum of sigmoids, and on the CPU it fails on
    class labels; this is the multi-class form that papers compare with.

    Args:
        gamma: How strongly easy pixels are played down.
        reduction: ``'none'``, ``'mean'`` or ``'sum'``.
        loss_weight: Weight of the loss.
        loss_name: Name in the log; it has to contain ``loss``.

    Example:
        >>> loss_decode = dict(type='SoftmaxFocalLoss', gamma=2.0)
    """

    def __init__(
        self,
        gamma: float = 2.0,
        reduction: str = 'mean',
        loss_weight: float = 1.0,
        loss_name: str = 'loss_focal',
    ) -> None:
        super().__init__()
        self.gamma = gamma
        self.reduction = reduction
        self.loss_weight = loss_weight
        self._loss_name = loss_name

    @property
    def loss_name(self) -> str:
        return self._loss_name

    def forward(
        self,
        cls_score: Tensor,
        label: Tensor,
        weight: Tensor | None = None,
        avg_factor: float | Tensor | None = None,
        ignore_index: int = 255,
        reduction_override: str | None = None,
        **kwargs,
    ) -> Tensor:
        """Scores (N, K, H, W), labels and weight (N, H, W)."""
        cross_entropy = F.cross_entropy(
            cls_score.float(),
            label,
            reduction='none',
            ignore_index=ignore_index,
        )
        p = torch.exp(-cross_entropy)
        loss = (1 - p) ** self.gamma * cross_entropy
        loss = reduce_pixels(
            loss,
            label,
            weight,
            None,
            reduction_override or self.reduction,
            avg_factor,
            ignore_index,
            avg_non_ignore=True,
        )
        return self.loss_weight * loss
