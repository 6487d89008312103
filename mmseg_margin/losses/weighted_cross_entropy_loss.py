"""Cross-entropy with class weights that come from the data."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from mmseg.registry import MODELS
from torch import Tensor, nn

from mmseg_margin.stats import ClassStats, check_weight_method, class_weights

from .pixels import reduce_pixels

REDUCTIONS = ('none', 'mean', 'sum')


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

    Args:
        pred: Scores, shape (N, K, H, W).
        label: Shape (N, H, W).
        weight: Pixel weights, shape (N, H, W).
        class_weight: Shape (K,); all classes alike if None.
        reduction: ``'none'`` gives shape (N, H, W).
        avg_factor: Divisor of ``'mean'`` in place of the class weights.
        ignore_index: The label of ignored pixels.
        avg_non_ignore: Accepted for mmseg's sake.
    """
    pred = pred.float()
    loss = F.cross_entropy(
        pred, label, reduction='none', ignore_index=ignore_index
    )
    return reduce_pixels(
        loss,
        label,
        weight,
        class_weight,
        reduction,
        avg_factor,
        ignore_index,
        avg_non_ignore=True,
    )


@MODELS.register_module()
class WeightedCrossEntropyLoss(nn.Module):
    """Cross-entropy with given class weights, or with the data set's own.

    Args:
        class_weight: One weight for each class; or ``'inverse'``,
            ``'sqrt'``, ``'median'``, ``'effective'``, or a power of the
            inverse frequency, computed from the label statistics that
            ``ClassStatsHook`` hands over (see
            :func:`mmseg_margin.stats.class_weights`); or None.
        reduction: ``'none'``, ``'mean'`` or ``'sum'``.
        loss_weight: Factor of the loss.
        loss_name: Has to contain ``loss`` to be part of the total.

    Example:
        >>> custom_imports = dict(imports=['mmseg_margin'])
        >>> custom_hooks = [dict(type='ClassStatsHook')]
        >>> model = dict(decode_head=dict(loss_decode=dict(
        ...     type='WeightedCrossEntropyLoss', class_weight='inverse')))
    """

    class_weight: Tensor

    def __init__(
        self,
        class_weight: Sequence[float] | str | None = None,
        reduction: str = 'mean',
        loss_weight: float = 1.0,
        loss_name: str = 'loss_ce',
    ) -> None:
        super().__init__()
        if reduction not in REDUCTIONS:
            raise ValueError(f'reduction={reduction!r} is not {REDUCTIONS}.')
        self.method: str | float | None = None
        self.reduction = reduction
        self.loss_weight = loss_weight
        self._loss_name = loss_name
        self.register_buffer('class_weight', torch.empty(0), persistent=False)
        if isinstance(class_weight, (str, int, float)):
            check_weight_method('class_weight', class_weight)
            self.method = class_weight
        elif class_weight is not None:
            self._set_class_weight(class_weight)

    @property
    def loss_name(self) -> str:
        """The key of this loss in the log."""
        return self._loss_name

    def set_class_stats(self, stats: ClassStats) -> None:
        """Take the weights from the statistics, if that was asked for."""
        if self.method is not None:
            self._set_class_weight(stats.class_weights(self.method))

    def set_class_counts(self, counts: Sequence[int]) -> None:
        """The same from the pixels of each class alone."""
        if self.method is not None:
            self._set_class_weight(class_weights(counts, self.method))

    def forward(
        self,
        cls_score: Tensor,
        label: Tensor,
        weight: Tensor | None = None,
        avg_factor: float | Tensor | None = None,
        ignore_index: int = 255,
        reduction_override: str | None = None,
    ) -> Tensor:
        """Scores (N, K, H, W) and labels (N, H, W) to a loss."""
        has_weights = len(self.class_weight) > 0
        if self.method is not None and not has_weights:
            raise RuntimeError(
                f'class_weight={self.method!r} needs label statistics: add '
                "custom_hooks = [dict(type='ClassStatsHook')] to the config."
            )
        return self.loss_weight * weighted_cross_entropy(
            cls_score,
            label,
            weight,
            self.class_weight if has_weights else None,
            reduction_override or self.reduction,
            avg_factor,
            ignore_index,
        )

    def _set_class_weight(self, weights: Sequence[float]) -> None:
        device = self.class_weight.device
        tensor = torch.tensor(weights, dtype=torch.float32, device=device)
        if tensor.ndim != 1 or not (tensor.isfinite() & (tensor >= 0)).all():
            raise ValueError(
                'class_weight must be finite and not negative, one for each '
                f'class, got {list(weights)}.'
            )
        self.class_weight = tensor
