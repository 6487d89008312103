r"""The Jaccard form's weights: which error costs the data set how much IoU.

``e_ik`` is the error of pixel i for class k: ``1 - p_ik`` if k is its label,
else ``p_ik``. Call everything an error that is above a level e. Then class k
misses ``F_k(e)`` of its pixels and takes ``B_k(e)`` of the others', both as
shares of all pixels, and its IoU is ``(P_k - F_k) / (P_k + B_k)``. The loss
is one less this IoU, averaged over the levels and the classes: the Lovasz
extension of the Jaccard loss. One more pixel of error e costs, per pixel,

    1 / (P_k + B_k(e))                      if it is the class's own
    (P_k - F_k(e)) / (P_k + B_k(e))^2       if it is another's

Lovasz-softmax sorts the pixels of a batch to find F and B. Here they are read
from histograms, which can remember more than one batch: at the borders of
their levels, and in between on a straight line.
"""

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from .eager import level_of, powers
from .kernels import LN_2, Classes
from .settings import LossSettings

CHUNK_PIXELS = 8192
MakeWeights = Callable[[Tensor], Tensor]


def jaccard_weights(share: Tensor, histograms: Tensor) -> Tensor:
    """What an error of own and of other pixels costs, (2, K, L + 1).

    The costs at the borders of L levels, from no error to the greatest.

    Args:
        share: ``P_k``, the share of each class among the labelled pixels of
            the data set, (K,); a class without pixels has no weight.
        histograms: Number of the classes' own and of others' pixels at each
            level of error, (2, K, L), from :func:`error_histograms` or a
            running sum of them.

    Example:
        >>> share, histograms = torch.tensor([0.5, 0.5]), torch.ones(2, 2, 4)
        >>> own, other = jaccard_weights(share, histograms)
        >>> [round(float(cost), 3) for cost in own[0]]
        [0.5, 0.571, 0.667, 0.8, 1.0]
    """
    tiny = torch.finfo(histograms.dtype).tiny
    above = histograms.flip(2).cumsum(2).flip(2)
    above = above / above[..., :1].clamp(min=tiny)
    above = torch.nn.functional.pad(above, (0, 1))
    share = share.to(histograms).unsqueeze(1)
    missed, taken = share * above[0], (1 - share) * above[1]
    union = share + taken
    own = 1 / (len(share) * union)
    weights = torch.stack([own, own * (share - missed) / union])
    return torch.where(share > 0, weights, 0.0)


def error_histograms(
    scores: Tensor,
    labels: Tensor,
    rho_0k: Tensor,
    rho_k0: Tensor,
    *,
    levels: int = 64,
    log_base: float | str = 'e',
    ignore_index: int = 255,
) -> Tensor:
    """Count the errors of a batch at each level, (2, K, L): own and others'.

    Args:
        scores: (N, K, ...). Every fourth pixel in both directions will do,
            ``scores[..., ::4, ::4]``: neighbours hardly differ.
        labels: (N, ...), integers in [0, K) or ``ignore_index``.
        rho_0k: Offsets of the background terms, (K,).
        rho_k0: Offsets of the foreground terms, (K,).
        levels: L.
        log_base: Base in which scores are exponents.
        ignore_index: Label of the pixels that are left out.
    """
    bits = LossSettings(log_base=log_base).bits
    classes = Classes.of(scores, bits, rho_0k, rho_k0)
    labels = labels.masked_fill(labels == ignore_index, -1)
    if scores.dim() == 2:  # one pixel an image
        scores, labels = scores.t().unsqueeze(0), labels.unsqueeze(0)
    sample = zip(scores.detach(), labels, strict=True)
    return count_errors(sample, classes, bits, levels)


def count_errors(
    sample: Iterable[tuple[Tensor, Tensor]],
    classes: Classes,
    bits: float,
    levels: int,
) -> Tensor:
    """:func:`error_histograms` of scores (K, ...) and labels (...).

    Labels are -1 where ignored.
    """
    K, like = len(classes.number), classes.rho_0k
    counts = like.new_zeros(2, K * levels)
    own, others = counts
    first = levels * classes.number
    for s, label in _chunks(sample):
        known = label.clamp(min=0).long()
        s = s.to(like)
        power, total, log_loss = powers(
            s, s.gather(0, known), known, classes, bits
        )
        # Scores that are not finite are no error of any level.
        counted = ((label >= 0) & log_loss.isfinite()).to(like)
        # All pixels as if others', then the class's own put right.
        level = level_of(power.mul_(levels / total), levels - 1)
        place = level.add_(first).long()
        others.scatter_add_(
            0, place.flatten(), counted.expand_as(place).flatten()
        )
        others.scatter_add_(0, place.gather(0, known)[0], -counted[0])
        error = torch.expm1(-LN_2 * log_loss).mul_(-levels)
        place = level_of(error, levels - 1) + levels * known
        own.scatter_add_(0, place[0], counted[0])
    return counts.view(2, K, levels)


def _chunks(
    sample: Iterable[tuple[Tensor, Tensor]],
) -> Iterator[tuple[Tensor, Tensor]]:
    """Few enough pixels, (K, P) and (1, P), for small intermediates."""
    for s, label in sample:
        yield from zip(
            s.flatten(1).split(CHUNK_PIXELS, 1),
            label.reshape(1, -1).split(CHUNK_PIXELS, 1),
            strict=True,
        )
