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
are read from histograms, which can be summed over the ranks. The levels of
the histograms are equally spaced in the logarithm of the odds ``e / (1 - e)``,
so that they resolve the errors of a confident network, close to 0 and to 1, as
well as those in between. Within a level F and B are linear, and all errors of
a level have the mean of its weights: with ``x = (U_1 - U_0) / U_0`` for a
union ``U = P + B`` that grows from ``U_0`` to ``U_1`` and an intersection ``I
= P - F`` that shrinks from ``I_0`` to ``I_1``,

    mean(1 / U)   = log(1 + x) / (x U_0)
    mean(I / U^2) = I_0 / (U_0 U_1) + (I_1 - I_0) / U_0^2
                    * (log(1 + x) / x - 1 / (1 + x)) / x

The means of ``F_k`` and ``B_k`` over all levels are the sums of the own and of
the other errors. With them in place of ``F_k(e)`` and ``B_k(e)``, the weights
give the gradient of the soft Jaccard index, and all errors of a class weigh
the same. The ``softness`` h anneals from the one to the other: it computes the
weights from ``(1 - h) F_k(e) + h mean(F_k)``, and likewise with ``B_k``.

The objective adds ``ce_weight`` times the cross-entropy ``-log p_y``. With the
softmax ``p`` and ``c_k = w_k``, or ``-w_y`` at the label,

    dl/ds_k = p_k (c_k - sum_j c_j p_j) + ce_weight (p_k - [k = y])
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from .backend import (
    EAGER_SCORES,
    GPU_SCORES,
    Pixels,
    StageResult,
    class_numbers,
    fusible_hits,
)
from .softmax import eager_softmax, fusible_softmax, softmax_hits
from .stage import reduced_loss
from .triton_launch import Stage
from .upsampling import Images, Phases

# A level is what the exponent and the first four bits of the odds as a float
# have in common: 16 levels per octave, from 2^-16 to 2^16.
LEVELS = 512
LEVEL_SHIFT = 23 - 4
FIRST_LEVEL = (127 - 16) << 4
LAST_LEVEL = FIRST_LEVEL + LEVELS - 1
# Columns of the counts: the levels, the sum of the errors, and the pixels of
# the class itself.
COLUMNS = (LEVELS, 1, 1)
# Sums of errors are counted in these units, because integers have the same
# sum in any order, and ranks then exchange one tensor.
ERROR_UNIT = 2.0**-32
# An image is counted on a grid of every `step`-th row and column, so that
# about this many pixels remain: neighbours hardly differ. A class that has
# fewer than FEW pixels on the grid is counted at every pixel instead.
COUNTED_PIXELS = 2**15
LARGEST_STEP = 4
FEW = 64


@dataclass(frozen=True)
class JaccardObjective:
    """The Jaccard loss of a batch plus a weighted cross-entropy."""

    ce_weight: float = 1.0
    # Sums a tensor over the ranks in place; None for one rank.
    reduce: Callable[[Tensor], Any] | None = None
    softness: float = 0.0
    name: ClassVar[str] = 'jaccard'

    def numbers(self, num_classes: int) -> tuple[float, ...]:
        return ()

    def constants(self, like: Tensor, source: Phases | Images) -> tuple:
        """Weights of own and of other errors, ce_weight, the soft losses."""
        counts = count_errors(source, like)
        if self.reduce is not None:
            self.reduce(counts)
        own, other = jaccard_weights(counts, like.dtype, self.softness)
        # A float that changes every step would trigger recompilation.
        ce_weight = like.new_full((), self.ce_weight)
        return own, other, ce_weight, soft_jaccard_losses(counts)

    @staticmethod
    def fusible(
        pixels: Pixels, constants: tuple, numbers: tuple
    ) -> StageResult:
        scores, labels, weight = pixels
        number, own, other, ce_weight, jaccard = constants
        is_label = labels == number
        softmax = fusible_softmax(scores, labels, number)
        p = softmax.power * (1 / softmax.total)
        index = labels.clamp(min=0).long()
        w_y = own[index, error_level(softmax.odds).long()]
        w = other.gather(1, error_level(p / (1 - p)).long())
        c = torch.where(is_label, -w_y, w)
        mean = (c * p).sum(0, keepdim=True)
        ce_weight = weight * ce_weight
        log_loss = softmax.log_loss
        loss = weight * (mean + w_y) + ce_weight * log_loss
        gradient = p * (weight * c + (ce_weight - weight * mean))
        gradient = gradient - torch.where(is_label, ce_weight, 0.0)
        hits = fusible_hits(scores, labels, number)
        ce = (weight * log_loss).sum()
        return StageResult(loss, hits, gradient, ce, jaccard, (c, w_y))

    @staticmethod
    def eager(pixels: Pixels, constants: tuple, numbers: tuple) -> StageResult:
        scores, labels, weight = pixels
        number, own, other, ce_weight, jaccard = constants
        index = labels.clamp(min=0).long()
        softmax = eager_softmax(scores, labels, index)
        hits = softmax_hits(softmax, scores, labels)
        p = softmax.power.div_(softmax.total)
        w_y = _look_up(own, softmax.odds, index.int())
        cp = _look_up(other, p / (1 - p), number)
        cp.scatter_(0, index, -w_y).mul_(p)
        mean = cp.sum(0, keepdim=True)
        log_loss = weight * softmax.log_loss
        loss = (mean + w_y).mul_(weight)
        loss.addcmul_(ce_weight, log_loss)
        ce_weight = weight * ce_weight
        gradient = cp.mul_(weight).addcmul_(p, ce_weight - weight * mean)
        gradient.scatter_add_(0, index, -ce_weight)
        return StageResult(loss, hits, gradient, log_loss.sum(), jaccard)

    def triton_stage(
        self, scores: Tensor, labels: Tensor, *others: Any
    ) -> StageResult:
        """The same on a GPU."""
        from .triton_jaccard import jaccard_stage

        return jaccard_stage(
            Stage(scores, labels, *others),
            ce_weight=self.ce_weight,
            step=counting_step(tuple(labels.shape[1:])),
            reduce=self.reduce,
            softness=self.softness,
        )


def error_level(odds: Tensor) -> Tensor:
    """The level of an error from its odds ``e / (1 - e)``, in int32."""
    bits = odds.to(torch.float32).view(torch.int32)
    # Clamped, so that NaN cannot index out of range.
    level = (bits >> LEVEL_SHIFT).clamp(FIRST_LEVEL, LAST_LEVEL)
    return level - FIRST_LEVEL


def _flat_level(odds: Tensor, row: Tensor) -> Tensor:
    """The same in a row of a flat table; overwrites the odds."""
    bits = odds.to(torch.float32).view(torch.int32)
    level = bits.bitwise_right_shift_(LEVEL_SHIFT)
    level.clamp_(FIRST_LEVEL, LAST_LEVEL)
    return level.add_(row * LEVELS - FIRST_LEVEL)


def _look_up(table: Tensor, odds: Tensor, row: Tensor) -> Tensor:
    """The weights of errors (K, P) or (1, P) in rows of a table."""
    index = _flat_level(odds, row).flatten()
    return table.flatten().index_select(0, index).view_as(odds)


def jaccard_weights(
    counts: Tensor, dtype: torch.dtype = torch.float32, softness: float = 0.0
) -> Tensor:
    """The mean weights of own and of other errors at each level.

    Args:
        counts: From :func:`count_errors`, summed over the ranks.
        dtype: Of the result.
        softness: 0 for the Lovasz extension, 1 for the soft Jaccard index.

    Returns:
        (2, K, LEVELS); 0 for a class without pixels.
    """
    levels, errors, pixels = _fractions(counts)
    above = F.pad(levels.flip(2).cumsum(2).flip(2), (0, 1))
    missed, taken = above.lerp(errors, softness)
    union, intersection = pixels + taken, (pixels - missed).clamp(min=0)
    # At the upper and at the lower border of each level.
    U_0, U_1 = union[:, 1:], union[:, :-1]
    I_0, I_1 = intersection[:, 1:], intersection[:, :-1]
    x = (U_1 - U_0) / U_0
    # The series where the closed forms cancel.
    series, divisor = x < 1e-4, x.clamp(min=1e-4)
    own = torch.where(series, 1 - x / 2, x.log1p() / divisor)
    slope = torch.where(series, 0.5 - x / 1.5, (own - U_0 / U_1) / divisor)
    other = I_0 * U_0 / U_1 + (I_1 - I_0) * slope
    shown = pixels > 0
    weights = torch.stack([own, other / U_0]) / (U_0 * shown.sum())
    return torch.where(shown, weights, 0.0).to(dtype)


def soft_jaccard_losses(counts: Tensor) -> Tensor:
    """One minus the soft Jaccard index of each class, divided by their number.

    So the sum of the result, (K,), is the loss of the batch.
    """
    _, (missed, taken), pixels = _fractions(counts)
    shown = pixels > 0
    loss = (missed + taken) / ((pixels + taken) * shown.sum())
    return torch.where(shown, loss, 0.0).flatten()


def _fractions(counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Levels (2, K, L), sums of errors (2, K, 1) and pixels (K, 1).

    All are fractions of the pixels of the batch. Those that were counted
    stand for all pixels of the class, or of the other classes.
    """
    levels, errors, (pixels, _) = counts.double().split(COLUMNS, 2)
    pixels = pixels / pixels.sum().clamp(min=1)
    all_pixels = torch.stack([pixels, 1 - pixels])
    scale = all_pixels / levels.sum(2, keepdim=True).clamp(min=1)
    return levels * scale, errors * scale * ERROR_UNIT, pixels


def counting_step(image_size: tuple[int, ...]) -> int:
    """The distance between counted pixels, in both directions."""
    if len(image_size) != 2:
        return 1
    step = math.isqrt(math.prod(image_size) // COUNTED_PIXELS)
    return min(max(step, 1), LARGEST_STEP)


def count_errors(source: Phases | Images, like: Tensor) -> Tensor:
    """Levels and sums of errors, and pixels, (2, K, LEVELS + 2) in int64.

    The first row of a class counts its own pixels, the second all others.

    Args:
        source: The pixels of the batch.
        like: Scores (N, K, ...), for K, the device and the dtype.
    """
    K, device = like.shape[1], like.device
    on_cpu = device.type == 'cpu'
    # On a GPU, selecting pixels would wait for the device.
    step = counting_step(source.image_size) if on_cpu else 1
    # Pixels that are not counted are in the last place.
    nowhere = 2 * K * LEVELS
    levels = torch.zeros(nowhere + 1, dtype=torch.int64, device=device)
    errors = torch.zeros(2, K, dtype=torch.float64, device=device)
    number = class_numbers(like) + K
    # Few enough to stay in the cache.
    size = max((EAGER_SCORES if on_cpu else GPU_SCORES) // K, 1)
    for scores, labels, weight in _counted_pixels(source, step, K):
        for s, label in zip(
            scores.split(size, 1), labels.split(size, 1), strict=True
        ):
            index = label.clamp(min=0).long()
            softmax = eager_softmax(s.to(like), label, index)
            # A pixel whose loss is not finite has no level of error.
            counted = (label >= 0) & softmax.log_loss.isfinite()
            p = softmax.power.div_(softmax.total)
            level = _flat_level(p / (1 - p), number)
            level.scatter_(0, index, _flat_level(softmax.odds, index.int()))
            # In place of masked_fill, which is not vectorised.
            level.add_((~counted).int(), alpha=nowhere).clamp_(max=nowhere)
            found = _histogram(level.flatten(), len(levels))
            levels.add_(found, alpha=weight)
            mass = weight * counted.to(p.dtype)
            own = torch.where(counted, mass * softmax.error, 0.0)
            errors[0].index_add_(0, index[0], own[0].double())
            # Zeros where a pixel is not counted, because 0 * NaN is NaN.
            if not on_cpu or not p[0].isfinite().all():
                p = p.masked_fill(~counted, 0.0)
            errors[1] += p @ mass[0]
    levels = levels[:-1].view(2, K, LEVELS)
    pixels = levels.sum(2)
    # The probabilities of all pixels, less those of the class's own.
    errors[1] -= pixels[0] - errors[0]
    pixels[1] = 0
    if step > 1:
        pixels[0] = _label_counts(source.image_labels, K).sum(0)
    errors = (errors / ERROR_UNIT).clamp_(min=0).long()
    return torch.cat([levels, errors[..., None], pixels[..., None]], 2)


def _counted_pixels(
    source: Phases | Images, step: int, K: int
) -> Iterator[tuple[Tensor, Tensor, int]]:
    """Scores (K, P) and labels (1, P), and the pixels that each stands for."""
    if step == 1:
        for _, scores, labels in source.sample(step):
            yield scores, labels, 1
        return
    labels = source.image_labels
    few = _label_counts(labels[:, ::step, ::step], K) < FEW
    for n, scores, labels in source.sample(step):
        labels = labels.masked_fill(_in_classes(labels, few[n]), -1)
        yield scores, labels, step * step
    for n in range(len(few)):
        labels = source.labels[n]
        at = _in_classes(labels, few[n]).nonzero(as_tuple=True)
        yield source.gather(n, at), labels[at].unsqueeze(0), 1


def _in_classes(labels: Tensor, classes: Tensor) -> Tensor:
    """Whether each label is one of the classes in a mask (K,)."""
    return classes.take(labels.clamp(min=0).long()) & (labels >= 0)


def _histogram(index: Tensor, size: int) -> Tensor:
    """How often each index below ``size`` occurs."""
    if index.device.type == 'cpu':
        return torch.bincount(index, minlength=size)
    # bincount waits for a GPU.
    found = torch.zeros(size, dtype=torch.int64, device=index.device)
    index = index.long()
    return found.scatter_add_(0, index, torch.ones_like(index))


def _label_counts(labels: Tensor, K: int) -> Tensor:
    """Pixels of each class in each image, (N, K)."""
    shifted = (image.flatten() + 1 for image in labels)  # 0 is ignored
    counts = [torch.bincount(x, minlength=K + 1) for x in shifted]
    return torch.stack(counts)[:, 1:]


def jaccard_loss(
    scores: Tensor,
    labels: Tensor,
    *,
    ce_weight: float = 1.0,
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
        reduce: Sums the counts of errors over the ranks in place, for
            example ``torch.distributed.all_reduce``; None for one rank.
        softness: 0 for the Lovasz extension of the Jaccard loss, 1 for the
            gradient of the soft Jaccard index, or between them.

    Example:
        >>> scores = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
        >>> loss = jaccard_loss(scores, torch.tensor([0, 1]), ce_weight=0.0)
        >>> round(float(loss), 4)
        0.2315
    """
    return reduced_loss(
        scores,
        labels,
        JaccardObjective(ce_weight, reduce, softness),
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
