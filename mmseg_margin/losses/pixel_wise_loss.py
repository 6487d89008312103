"""What all losses of pixels have in common: everything but the pixel's loss.

The average, autocast, heads with one channel, the fused stage, the checks.
"""

from typing import Any

import torch
from torch import Tensor

from mmseg_margin.functional import check_label_values, upsampled_stage

from .averaging import PixelShares, check_reduction, pixel_shares
from .class_weights import ClassWeight, ClassWeightedModule
from .validation import check_loss_name


def two_class_scores(scores: Tensor) -> Tensor:
    """Scores (0, s) of a binary head, whose one channel is s."""
    if scores.shape[1] > 1:
        return scores
    return torch.cat([torch.zeros_like(scores), scores], 1)


class PixelWiseLoss(ClassWeightedModule):
    """The base of our losses; :meth:`pixel_losses` makes the difference.

    Args:
        class_weight: See :class:`ClassWeightedModule`.
        reduction: ``'none'``, ``'mean'`` or ``'sum'``.
        loss_weight: Factor of the loss.
        loss_name: Name in the log; it has to contain ``loss``.
        avg_non_ignore: Whether the mean is taken over the labelled pixels
            instead of over all.
        global_mean: Whether the mean is taken over the pixels of all ranks,
            so that the training does not depend on their number.
    """

    def __init__(
        self,
        class_weight: ClassWeight = None,
        reduction: str = 'mean',
        loss_weight: float = 1.0,
        loss_name: str = 'loss_ce',
        avg_non_ignore: bool = True,
        global_mean: bool = False,
    ) -> None:
        super().__init__(class_weight)
        check_reduction(reduction)
        check_loss_name(loss_name)
        self.reduction = reduction
        self.loss_weight = loss_weight
        self._loss_name = loss_name
        self.avg_non_ignore = avg_non_ignore
        self.global_mean = global_mean
        # A GPU need not wait for a check of the labels in every step once
        # the whole data set has been checked.
        self.labels_checked = False

    @property
    def loss_name(self) -> str:
        """The key of this loss in the log."""
        return self._loss_name

    def pixel_losses(
        self,
        scores: Tensor,
        label: Tensor,
        ignore_index: int,
        pixel_weight: Tensor | float,
    ) -> Tensor:
        """(N, K, H, W) and (N, H, W) to (N, H, W), 0 where ignored.

        Each is multiplied by its weight, one for all or (N, H, W).
        """
        raise NotImplementedError

    def stage_settings(self, num_classes: int) -> dict[str, Any]:
        """What :func:`upsampled_stage` needs to compute the same."""
        raise NotImplementedError

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
        scores = two_class_scores(cls_score)
        self.check(scores, label, ignore_index)
        reduction = reduction_override or self.reduction
        with torch.autocast(scores.device.type, enabled=False):
            shares = self._shares(
                label, ignore_index, reduction, weight, avg_factor
            )
            loss = self.pixel_losses(
                scores, label, ignore_index, shares.of_each(self.loss_weight)
            )
        return loss if reduction == 'none' else loss.sum()

    def fused_stage(
        self,
        low_scores: Tensor,
        label: Tensor,
        ignore_index: int,
        align_corners: bool,
    ) -> tuple[Tensor, Tensor]:
        """The loss of up-sampled scores, and how many pixels they hit.

        Scores (N, K, h, w) are up-sampled to the labels (N, H, W) piece by
        piece, so that they are never there at full size.
        """
        self.check(low_scores, label, ignore_index)
        with torch.autocast(low_scores.device.type, enabled=False):
            shares = self._shares(label, ignore_index, self.reduction)
            result = upsampled_stage(
                low_scores,
                label,
                pixel_weight=shares.weights,
                ignore_index=ignore_index,
                align_corners=align_corners,
                **self.stage_settings(low_scores.shape[1]),
            )
            loss = self.loss_weight * result.loss / shares.divisor
        return loss, result.hits

    def _shares(
        self,
        label: Tensor,
        ignore_index: int,
        reduction: str,
        weight: Tensor | None = None,
        avg_factor: float | Tensor | None = None,
    ) -> PixelShares:
        return pixel_shares(
            label,
            ignore_index,
            reduction,
            self.class_weight if len(self.class_weight) else None,
            weight,
            avg_factor,
            self.avg_non_ignore,
            self.global_mean and self.training,
        )

    def check(self, scores: Tensor, label: Tensor, ignore_index: int) -> None:
        """Raise where the statistics or the labels do not fit the scores."""
        self.check_classes(scores.shape[1])
        on_cpu = scores.device.type == 'cpu'
        if torch.compiler.is_compiling() or (
            self.labels_checked and not on_cpu
        ):
            return
        check_label_values(label, scores.shape[1], ignore_index)
