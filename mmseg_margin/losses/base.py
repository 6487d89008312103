"""The base of our losses: averaging, class weights and checks."""

from collections.abc import Sequence
from typing import Any

import torch
from mmengine.dist import all_reduce
from torch import Tensor, nn

from mmseg_margin.errors import NOT_NEGATIVE, SettingError, one_of, require
from mmseg_margin.functional.backend import (
    PixelObjective,
    StageResult,
    uncompiled,
)
from mmseg_margin.functional.stage import REDUCTIONS, as_index, run_stage
from mmseg_margin.stats import WEIGHT_METHODS, ClassStats, class_weights

ClassWeight = Sequence[float] | str | float | None
# mmseg's protection against a batch without labels.
EPS = torch.finfo(torch.float32).eps


class PixelLoss(nn.Module):
    """A mean over pixels; a subclass defines :meth:`objective`.

    Args:
        class_weight: One weight for each class; or ``'inverse'``,
            ``'sqrt'`` or ``'median'``, computed from the label statistics of
            ``ClassStatsHook``; or None.
        reduction: ``'none'``, ``'mean'`` or ``'sum'``.
        loss_weight: Factor of the loss.
        loss_name: Name in the log; it has to contain ``loss``.
        avg_non_ignore: Whether the mean is taken over the labelled pixels
            instead of over all.
        global_mean: Whether the mean is taken over the pixels of all ranks,
            so that the training does not depend on their number.
        backend: ``'auto'``, ``'triton'``, ``'compiled'`` or ``'eager'``.
    """

    class_weight: Tensor

    def __init__(
        self,
        class_weight: ClassWeight = None,
        reduction: str = 'mean',
        loss_weight: float = 1.0,
        loss_name: str = 'loss_ce',
        avg_non_ignore: bool = True,
        global_mean: bool = False,
        backend: str = 'auto',
    ) -> None:
        super().__init__()
        require('reduction', reduction, *one_of(REDUCTIONS))
        self.reduction = reduction
        self.loss_weight, self.loss_name = loss_weight, loss_name
        check_name_and_weight(self)
        self.avg_non_ignore = avg_non_ignore
        self.global_mean = global_mean
        self.backend = backend
        # Whether it cannot be computed before the counts arrive.
        self.needs_statistics = False
        self.weight_method: str | None = None
        weights = torch.empty(0)
        if isinstance(class_weight, (str, int, float)):
            require('class_weight', class_weight, *one_of(WEIGHT_METHODS))
            self.weight_method = str(class_weight)
            self.needs_statistics = True
        elif class_weight is not None:
            weights = torch.tensor(class_weight, dtype=torch.float32)
        self.register_buffer('class_weight', weights, persistent=False)

    def expect_classes(self, num_classes: int) -> None:
        """Give the buffers their size before the statistics arrive.

        EMAHook copies the model when the run begins, and updates its buffers
        in place from then on.
        """
        if self.needs_statistics and self.weight_method is not None:
            self.class_weight = self.class_weight.new_ones(num_classes)

    def set_class_stats(self, stats: ClassStats) -> None:
        """Derive what the loss needs from the statistics of a data set."""
        self.set_class_counts(stats.counts, stats)

    def set_class_counts(
        self, counts: Sequence[int], stats: ClassStats | None = None
    ) -> None:
        """The same from the pixels of each class, which may be all."""
        if self.weight_method is not None:
            image_pixels = stats.image_pixels if stats else None
            weights = class_weights(counts, self.weight_method, image_pixels)
            self.class_weight = self.class_weight.new_tensor(weights)
        self.needs_statistics = False

    def check(self, scores: Tensor) -> None:
        """Raise where statistics or weights do not fit the scores."""
        if self.needs_statistics:
            raise SettingError(
                f'{type(self).__name__} has no label statistics yet: add '
                "custom_hooks=[dict(type='ClassStatsHook')] to the config, or "
                'give the loss class_counts=[...] or the JSON file of '
                'python -m mmseg_margin class_stats.'
            )
        for name, buffer in self.named_buffers():
            if len(buffer) not in (0, scores.shape[1]):
                raise SettingError(
                    f'{name} has {len(buffer)} numbers but the head '
                    f'{scores.shape[1]} classes: make them agree.'
                )

    def objective(self) -> PixelObjective:
        """What is computed for each pixel, at this step of the training."""
        raise NotImplementedError

    @uncompiled
    def forward(
        self,
        cls_score: Tensor,
        label: Tensor,
        weight: Tensor | None = None,
        avg_factor: float | Tensor | None = None,
        ignore_index: int = 255,
        reduction_override: str | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """Scores (N, K, H, W), labels and weight (N, H, W)."""
        averaging = weight, avg_factor, reduction_override
        return self.run(cls_score, label, ignore_index, None, *averaging).loss

    def run(
        self,
        scores: Tensor,
        label: Tensor,
        ignore_index: int,
        align_corners: bool | None = None,
        weight: Tensor | None = None,
        avg_factor: float | Tensor | None = None,
        reduction: str | None = None,
    ) -> StageResult:
        """Loss, hits and cross-entropy.

        Scores (N, K, h, w) are up-sampled to the labels (N, H, W) piece by
        piece with ``align_corners``, and never materialised at full size; it
        is None for full-size scores.
        """
        self.check(scores)
        label, reduction = as_index(label), reduction or self.reduction
        pixel_weight = self._pixel_weight(
            label, ignore_index, weight, avg_factor, reduction
        )
        return run_stage(
            scores,
            label,
            self.objective(),
            pixel_weight=self.loss_weight * pixel_weight,
            align_corners=align_corners,
            ignore_index=ignore_index,
            per_pixel=reduction == 'none',
            backend=self.backend,
        )

    def _pixel_weight(
        self,
        label: Tensor,
        ignore_index: int,
        weight: Tensor | None,
        avg_factor: float | Tensor | None,
        reduction: str,
    ) -> Tensor | float:
        """The weight of each pixel in the loss: one number, or (N, H, W).

        As in mmseg, the divisor of the mean contains class weights but no
        pixel weights; unlike mmseg, class weights work with ignored pixels.

        With ``global_mean`` the divisor of rank r of R is ``sum_r n_r / R``
        instead of its own ``n_r``. The average gradient of the ranks is then
        that of ``sum_r S_r / sum_r n_r``, the mean over the pixels of all
        ranks, while a mean of means would give more weight to the pixels of a
        rank with few.
        """
        require('reduction', reduction, *one_of(REDUCTIONS))
        labelled, weights = label != ignore_index, None
        if K := len(self.class_weight):
            # Clamped, because an invalid label is only reported later.
            index = torch.where(labelled, label, 0).clamp(0, K - 1)
            weights = self.class_weight[index] * labelled
        divisor: Tensor | float = 1.0
        if reduction == 'sum' and avg_factor is not None:
            raise SettingError("avg_factor has no effect on reduction='sum'.")
        if reduction == 'mean' and avg_factor is not None:
            divisor = avg_factor + EPS
        elif reduction == 'mean':
            counted = labelled if weights is None else weights
            if weights is None and not self.avg_non_ignore:
                counted = torch.ones_like(labelled)
            divisor = counted.sum(dtype=torch.float32)
            if self.global_mean and self.training:
                all_reduce(divisor, 'mean')
            divisor = divisor + EPS
        if weight is not None:
            weights = weight.float() * (1.0 if weights is None else weights)
        return 1 / divisor if weights is None else weights / divisor


def check_name_and_weight(loss: Any) -> None:
    """Raise on what would take a loss out of the sum, or reverse it."""
    if 'loss' not in str(loss.loss_name):
        raise SettingError(
            f'loss_name={loss.loss_name!r} must contain "loss", or mmengine '
            'leaves the term out of the sum it minimises.'
        )
    require('loss_weight', loss.loss_weight, *NOT_NEGATIVE)
