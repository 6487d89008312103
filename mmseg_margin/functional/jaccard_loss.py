r"""The Jaccard objective: the batch's IoU plus a weighted cross-entropy.

``e_ik`` is the error of pixel i for class k: ``1 - p_ik`` if k is its label,
else ``p_ik``. Count a pixel as wrong for class k if its error is above a level
e. Let ``P_k`` be the fraction of pixels that belong to class k, ``F_k(e)``
the fraction that belong to it and are wrong (missed), and ``B_k(e)`` the
fraction that do not belong to it and are wrong (taken). Then the IoU of class
k is ``(P_k - F_k) / (P_k + B_k)``. One minus this IoU, averaged over the
levels and over the K classes that occur in the batch, is the Lovasz extension
of the Jaccard loss. One more pixel of error e costs, per pixel,

    w_ik = 1 / (K (P_k + B_k(e)))                        for its own class
    w_ik = (P_k - F_k(e)) / (K (P_k + B_k(e))^2)         for another class

so the loss is ``l_i = sum_k w_ik e_ik``, with the weights held constant in the
gradient. Lovasz-softmax sorts the pixels of a batch to find F and B. Here they
are read from histograms over L levels of error, which can be summed over the
ranks; between the borders of the levels the weights are linear in the error.

The means of ``F_k`` and ``B_k`` over all levels are the sums of the own and of
the other errors. With them in place of ``F_k(e)`` and ``B_k(e)``, the weights
give the gradient of the soft Jaccard index, and all errors of a class weigh
the same. The ``softness`` h goes from the one to the other: it computes the
weights from ``(1 - h) F_k(e) + h mean(F_k)``, and likewise with ``B_k``.

The objective adds ``ce_weight`` times the cross-entropy ``-log p_y``. With the
softmax ``p`` and ``c_k = w_k``, or ``-w_y`` at the label,

    dl/ds_k = p_k (c_k - sum_j c_j p_j) + ce_weight (p_k - [k = y])
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mmseg_margin.errors import SettingError

from .backend import EAGER_SCORES, Pixels, PixelTerms, class_numbers
from .softmax import eager_softmax, fusible_softmax
from .stage import reduced_loss
from .triton_launch import Stage, TritonResult
from .upsampling import Images, Phases

# An image is counted at every `step`-th row and column, so that about this
# many pixels remain: neighbours hardly differ, and small classes still occur.
COUNTED_PIXELS = 2**15
LARGEST_STEP = 4


@dataclass(frozen=True)
class JaccardObjective:
    """The Jaccard loss of a batch plus a weighted cross-entropy."""

    ce_weight: float = 1.0
    levels: int = 64  # L, the number of error levels in the histograms
    # Sums a tensor over the ranks in place; None for one rank.
    reduce: Callable[[Tensor], Any] | None = None
    softness: float = 0.0
    name: ClassVar[str] = 'jaccard'

    def numbers(self, num_classes: int) -> tuple[float, ...]:
        return ()

    def constants(self, like: Tensor, source: Phases | Images) -> tuple:
        """Weights of own and of other errors, and ce_weight."""
        step = counting_step(source.image_size)
        histograms = count_errors(source.sample(step), like, self.levels)
        # The step depends on the image size, which may differ by rank.
        histograms *= step * step
        if self.reduce is not None:
            self.reduce(histograms)
        weights = jaccard_weights(histograms, like.dtype, self.softness)
        own, other = map(ErrorWeights.between, weights)
        # A float that changes every step would trigger recompilation.
        return own, other, like.new_full((), self.ce_weight)

    @staticmethod
    def fusible(
        pixels: Pixels, constants: tuple, numbers: tuple
    ) -> PixelTerms:
        scores, labels, weight = pixels
        number, own, other, ce_weight = constants
        is_label = labels == number
        softmax = fusible_softmax(scores, labels, is_label)
        p = softmax.power * (1 / softmax.total)
        index = labels.clamp(min=0).long()
        w_y = _interpolate(own, softmax.error, lambda t, at: t[index, at])
        w = _interpolate(other, p, lambda t, at: t.gather(1, at))
        c = torch.where(is_label, -w_y, w)
        mean = (c * p).sum(0, keepdim=True)
        ce_weight = weight * ce_weight
        log_loss = softmax.log_loss
        loss = weight * (mean + w_y) + ce_weight * log_loss
        gradient = p * (weight * c + (ce_weight - weight * mean))
        gradient = gradient - torch.where(is_label, ce_weight, 0.0)
        return PixelTerms(
            loss,
            gradient,
            softmax.is_hit.sum(),
            (weight * log_loss).sum(),
            stored=(c, w_y),
        )

    @staticmethod
    def eager(pixels: Pixels, constants: tuple, numbers: tuple) -> PixelTerms:
        scores, labels, weight = pixels
        _, own, other, ce_weight = constants
        index = labels.clamp(min=0).long()
        softmax = eager_softmax(scores, labels, index)
        p = softmax.power.div_(softmax.total)
        w_y = _look_up(own, softmax.error, index)
        cp = _look_up(other, p).scatter_(0, index, -w_y).mul_(p)
        mean = cp.sum(0, keepdim=True)
        log_loss = weight * softmax.log_loss
        loss = (mean + w_y).mul_(weight)
        loss.addcmul_(ce_weight, log_loss)
        ce_weight = weight * ce_weight
        gradient = cp.mul_(weight).addcmul_(p, ce_weight - weight * mean)
        gradient.scatter_add_(0, index, -ce_weight)
        return PixelTerms(loss, gradient, softmax.is_hit.sum(), log_loss.sum())

    def triton_stage(
        self, scores: Tensor, labels: Tensor, *others: Any
    ) -> TritonResult:
        """The same on a GPU."""
        from .triton_jaccard import jaccard_stage

        return jaccard_stage(
            Stage(scores, labels, *others),
            ce_weight=self.ce_weight,
            levels=self.levels,
            step=counting_step(tuple(labels.shape[1:])),
            reduce=self.reduce,
            softness=self.softness,
        )


class ErrorWeights(NamedTuple):
    """Weights that are linear in the error within each of L levels."""

    value: Tensor  # at the lower border of each level, and at 1, (K, L + 1)
    slope: Tensor  # difference to the next border, (K, L + 1); the last is 0
    first: Tensor  # index of each class's row in the flat tables, (K, 1)

    @staticmethod
    def between(borders: Tensor) -> 'ErrorWeights':
        """Interpolate the weights at the borders, (K, L + 1)."""
        K, size = borders.shape
        first = torch.arange(0, K * size, size, device=borders.device)
        return ErrorWeights(
            borders.contiguous(),
            borders.diff(append=borders[:, -1:]),
            first.to(torch.int32).unsqueeze(1),
        )


def _interpolate(
    table: ErrorWeights,
    error: Tensor,
    take: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """The weights of errors, which ``take`` reads at a level of the tables."""
    place, level = _locate(table, error)
    at = level.long()
    return take(table.value, at) + take(table.slope, at) * (place - level)


def _look_up(
    table: ErrorWeights, error: Tensor, index: Tensor | None = None
) -> Tensor:
    """The same in few passes: errors (K, P), or (1, P) of given classes."""
    place, level = _locate(table, error)
    first = table.first
    if index is not None:
        first = first.flatten().index_select(0, index[0])
    level = level.add_(first).flatten()
    value, slope = (
        numbers.flatten().index_select(0, level).view_as(error)
        for numbers in (table.value, table.slope)
    )
    return value.addcmul_(slope, place.frac_())


def _locate(table: ErrorWeights, error: Tensor) -> tuple[Tensor, Tensor]:
    """The errors in units of levels, and the level of each."""
    size = table.value.shape[1]
    place = error * (size - 1)
    return place, _level(place, size)


def jaccard_weights(
    histograms: Tensor,
    dtype: torch.dtype = torch.float32,
    softness: float = 0.0,
) -> Tensor:
    """The weights of own and of other errors at the borders of L levels.

    Args:
        histograms: Pixels of the class itself, and of all other classes, at
            each level of error, (2, K, L), from :func:`count_errors`.
        dtype: Of the result.
        softness: 0 for the Lovasz extension, 1 for the soft Jaccard index.

    Returns:
        (2, K, L + 1), from error 0 to error 1; 0 for a class without pixels.

    Example:
        >>> own, other = jaccard_weights(torch.ones(2, 2, 4))
        >>> [round(float(weight), 3) for weight in own[0]]
        [0.5, 0.571, 0.667, 0.8, 1.0]
    """
    above = histograms.flip(2).cumsum(2).flip(2)
    above = F.pad(above, (0, 1)).to(dtype)
    fraction = above[0, :, :1] / above[0, :, 0].sum().clamp(min=1)
    missed, taken = above / above[..., :1].clamp(min=1)
    masses = torch.stack([fraction * missed, (1 - fraction) * taken])
    # Linear within a level, so the mean over a level is that of its borders.
    means = (masses[..., :-1] + masses[..., 1:]).mean(2, keepdim=True) / 2
    missed, taken = masses.lerp(means, softness)
    union = fraction + taken
    shown = (fraction > 0).sum().clamp(min=1)
    own = 1 / (shown * union)
    weights = torch.stack([own, own * (fraction - missed) / union])
    return torch.where(fraction > 0, weights, 0.0)


def counting_step(image_size: tuple[int, ...]) -> int:
    """The distance between counted pixels, in both directions."""
    if len(image_size) != 2:
        return 1
    step = math.isqrt(math.prod(image_size) // COUNTED_PIXELS)
    return min(max(step, 1), LARGEST_STEP)


def count_errors(
    sample: Iterable[tuple[Tensor, Tensor]], like: Tensor, levels: int = 64
) -> Tensor:
    """Count the pixels at each level of error, (2, K, L) in int64.

    Args:
        sample: Scores (K, ...) and labels (...), -1 where ignored.
        like: Scores (N, K, ...), for K, the device and the dtype.
        levels: L.
    """
    K = like.shape[1]
    counts = torch.zeros(2 * K * levels, dtype=torch.int64, device=like.device)
    others = levels * (class_numbers(like) + K)
    # Few enough to stay in the cache.
    size = max(EAGER_SCORES // K, 1)
    for scores, labels in sample:
        for s, label in zip(
            scores.flatten(1).split(size, 1),
            labels.reshape(1, -1).split(size, 1),
            strict=True,
        ):
            index = label.clamp(min=0).long()
            softmax = eager_softmax(s.to(like), label, index)
            # A pixel whose loss is not finite has no level of error.
            counted = (label >= 0) & softmax.log_loss.isfinite()
            p = softmax.power.mul_(levels / softmax.total)
            place = _level(p, levels).add_(others).long()
            own = _level(levels * softmax.error, levels) + levels * index
            place.scatter_(0, index, own)
            counts.scatter_add_(
                0, place.flatten(), counted.long().expand_as(place).flatten()
            )
    return counts.view(2, K, levels)


def _level(place: Tensor, levels: int) -> Tensor:
    # Clamped, so that NaN cannot index out of range.
    return place.to(torch.int32).clamp_(0, levels - 1)


def jaccard_loss(
    scores: Tensor,
    labels: Tensor,
    *,
    ce_weight: float = 1.0,
    levels: int = 64,
    align_corners: bool | None = None,
    ignore_index: int = 255,
    reduction: str = 'mean',
    reduce: Callable[[Tensor], Any] | None = None,
    backend: str = 'auto',
    softness: float = 0.0,
) -> Tensor:
    """The Jaccard loss of the batch plus ``ce_weight`` times cross-entropy.

    Args:
        scores: As in :func:`margin_loss`, like all that is not listed here.
        labels: (N, ...), integers in [0, K) or ``ignore_index``.
        ce_weight: Weight of the cross-entropy. We recommend raising it with
            the square of the training's progress, from 0 to 1.
        levels: Number of error levels in the histograms.
        reduce: Sums the error histograms over the ranks in place, for
            example ``torch.distributed.all_reduce``; None for one rank.
        softness: 0 for the Lovasz extension of the Jaccard loss, 1 for the
            gradient of the soft Jaccard index, or between them.

    Example:
        >>> scores = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
        >>> loss = jaccard_loss(scores, torch.tensor([0, 1]), ce_weight=0.0)
        >>> round(float(loss), 4)
        0.2193
    """
    return reduced_loss(
        scores,
        labels,
        JaccardObjective(ce_weight, check_levels(levels), reduce, softness),
        align_corners=align_corners,
        ignore_index=ignore_index,
        reduction=reduction,
        backend=backend,
    )


def upsampled_jaccard_loss(
    low_scores: Tensor,
    labels: Tensor,
    *,
    align_corners: bool = False,
    **settings: Any,
) -> Tensor:
    """:func:`jaccard_loss`, up-sampled as by :func:`upsampled_margin_loss`."""
    return jaccard_loss(
        low_scores, labels, align_corners=align_corners, **settings
    )


def check_levels(levels: int) -> int:
    if isinstance(levels, int) and levels > 1:
        return levels
    raise SettingError(f'levels={levels!r} must be a whole number above 1.')
