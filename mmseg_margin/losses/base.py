"""The bases of our losses: averaging, class weights and checks."""

from collections.abc import Iterable, Sequence, Sized
from typing import Any

import torch
from mmengine.dist import all_reduce
from torch import Tensor, nn

from mmseg_margin.errors import MarginError, SettingError, did_you_mean
from mmseg_margin.functional.backend import (
    PixelObjective,
    StageResult,
    uncompiled,
)
from mmseg_margin.functional.settings import require
from mmseg_margin.functional.stage import (
    as_index,
    check_reduction,
    run_stage,
)
from mmseg_margin.stats import ClassStats, check_weight_method, class_weights

ClassWeight = Sequence[float] | str | float | None
# mmseg's protection against a batch without labels.
EPS = torch.finfo(torch.float32).eps


class NoStatisticsError(MarginError, RuntimeError):
    """A loss that needs the data set's counts was called without them."""

    def __init__(self, loss: str) -> None:
        super().__init__(
            f'{loss} has no label statistics yet: add '
            "custom_hooks=[dict(type='ClassStatsHook')] to the config, or "
            'give the loss class_counts=[...] or the JSON file of '
            'python -m mmseg_margin class_stats.'
        )


class ClassWeightedLoss(nn.Module):
    """A loss with a name, a factor and class weights.

    Args:
        class_weight: One weight for each class; or ``'inverse'``,
            ``'sqrt'`` or ``'median'``, computed from the label statistics of
            ``ClassStatsHook``; or None.
        loss_weight: Factor of the loss.
        loss_name: Name in the log; it has to contain ``loss``.
    """

    class_weight: Tensor

    def __init__(
        self, class_weight: ClassWeight, loss_weight: float, loss_name: str
    ) -> None:
        super().__init__()
        check_loss_name(loss_name)
        self.loss_weight = loss_weight
        require(self, 'loss_weight', 'not be negative', lambda x: x >= 0)
        self.loss_name = loss_name
        # Whether it cannot be computed before the counts arrive.
        self.needs_statistics = False
        self.weight_method: str | None = None
        self.register_buffer('class_weight', torch.empty(0), persistent=False)
        if isinstance(class_weight, (str, int, float)):
            check_weight_method('class_weight', class_weight)
            self.weight_method = str(class_weight)
            self.needs_statistics = True
        elif class_weight is not None:
            self._set_class_weight(class_weight)

    def expect_classes(self, num_classes: int) -> None:
        """Give the buffers their size before the statistics arrive.

        EMAHook copies the model when the run begins, and updates its buffers
        in place from then on.
        """
        if self.needs_statistics and self.weight_method is not None:
            self.class_weight = self.class_weight.new_ones(num_classes)

    def set_class_stats(self, stats: ClassStats) -> None:
        """Derive what the loss needs from the statistics of a data set."""
        self.set_class_counts(stats.counts, stats.classes, stats.image_pixels)

    def set_class_counts(
        self,
        counts: Sequence[int],
        classes: Sequence[str] | None = None,
        image_pixels: Sequence[int] | None = None,
    ) -> None:
        """The same from the pixels of each class alone."""
        if self.weight_method is not None:
            self._set_class_weight(
                class_weights(counts, self.weight_method, image_pixels)
            )
        self.needs_statistics = False

    def _set_class_weight(self, weights: Sequence[float]) -> None:
        tensor = torch.as_tensor(weights, dtype=torch.float32)
        if tensor.ndim != 1 or not (tensor.isfinite() & (tensor >= 0)).all():
            raise SettingError(
                'class_weight must be finite and not negative, one for each '
                f'class, got {list(weights)}.'
            )
        self.class_weight = tensor.to(self.class_weight.device)

    def check(self, scores: Tensor) -> None:
        """Raise where statistics or weights do not fit the scores."""
        if self.needs_statistics:
            raise NoStatisticsError(type(self).__name__)
        check_class_weight(self.class_weight, scores.shape[1])


class PixelLoss(ClassWeightedLoss):
    """A mean over pixels; a subclass defines :meth:`objective`.

    Args:
        class_weight: See :class:`ClassWeightedLoss`, as for ``loss_weight``
            and ``loss_name``.
        reduction: ``'none'``, ``'mean'`` or ``'sum'``.
        avg_non_ignore: Whether the mean is taken over the labelled pixels
            instead of over all.
        global_mean: Whether the mean is taken over the pixels of all ranks,
            so that the training does not depend on their number.
        backend: ``'auto'``, ``'triton'``, ``'compiled'`` or ``'eager'``.
    """

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
        super().__init__(class_weight, loss_weight, loss_name)
        check_reduction(reduction)
        self.reduction = reduction
        self.avg_non_ignore = avg_non_ignore
        self.global_mean = global_mean
        self.backend = backend

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
        return self.run(
            two_class_scores(cls_score),
            label,
            ignore_index,
            reduction=reduction_override,
            weight=weight,
            avg_factor=avg_factor,
        ).loss

    def run(
        self,
        scores: Tensor,
        label: Tensor,
        ignore_index: int,
        align_corners: bool | None = None,
        reduction: str | None = None,
        weight: Tensor | None = None,
        avg_factor: float | Tensor | None = None,
    ) -> StageResult:
        """Loss, hits and cross-entropy.

        Scores (N, K, h, w) are up-sampled to the labels (N, H, W) piece by
        piece with ``align_corners``, and never materialised at full size; it
        is None for full-size scores.
        """
        self.check(scores)
        label, reduction = as_index(label), reduction or self.reduction
        pixel_weight = self._pixel_weight(
            label, label != ignore_index, reduction, weight, avg_factor
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
        labelled: Tensor,
        reduction: str,
        weight: Tensor | None,
        avg_factor: float | Tensor | None,
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
        check_reduction(reduction)
        if avg_factor is not None and reduction == 'sum':
            raise SettingError("avg_factor does not go with reduction='sum'.")
        weights, K = None, len(self.class_weight)
        if K:
            # Clamped, because an invalid label is only reported later.
            index = torch.where(labelled, label, 0).clamp(0, K - 1)
            weights = self.class_weight[index] * labelled
        divisor: Tensor | float = 1.0
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


def unknown_setting(
    loss: type, name: str, known: Iterable[str]
) -> SettingError:
    """The error about a setting that a loss does not have."""
    return SettingError(
        f'{loss.__name__} has no setting {name!r}, but '
        f'{", ".join(known)}.{did_you_mean(name, known)}'
    )


def check_class_weight(weights: Sized | None, num_classes: int) -> None:
    """Raise unless there is one weight for each class, or none at all."""
    if weights is not None and len(weights) not in (0, num_classes):
        raise SettingError(
            f'class_weight has {len(weights)} numbers but the head '
            f'{num_classes} classes: give one for each class.'
        )


def check_loss_name(loss_name: str) -> None:
    """Raise on a name that would take the loss out of the sum."""
    if not isinstance(loss_name, str) or 'loss' not in loss_name:
        raise SettingError(
            f'loss_name={loss_name!r} must contain "loss", or mmengine '
            'leaves the term out of the sum it minimises.'
        )


def two_class_scores(scores: Tensor) -> Tensor:
    """Scores (0, s) of a binary head, whose one channel is s."""
    if scores.shape[1] > 1:
        return scores
    return torch.cat([torch.zeros_like(scores), scores], 1)
