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
from histograms, which can remember more than one batch.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

CHUNK_PIXELS = 8192
MakeWeights = Callable[[Tensor], Tensor]


def jaccard_weights(share: Tensor, histograms: Tensor) -> Tensor:
    """What an error of own and of other pixels costs at L levels, (2, K, L).

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
        [0.533, 0.615, 0.762, 0.889]
    """
    tiny = torch.finfo(histograms.dtype).tiny
    # Half of a level's own pixels lie above its middle.
    above = histograms.flip(2).cumsum(2).flip(2) - histograms / 2
    above = above / histograms.sum(2, keepdim=True).clamp(min=tiny)
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
    nats: float = 1.0,
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
        nats: Natural logarithm of the base in which scores are exponents.
        ignore_index: Label of the pixels that are left out.
    """
    K = scores.shape[1]
    dtype = torch.promote_types(scores.dtype, torch.float32)
    rho_0k, rho_k0 = (
        torch.as_tensor(rho, dtype=dtype, device=scores.device).expand(K)
        for rho in (rho_0k, rho_k0)
    )
    counts = torch.zeros(2, K * levels, dtype=dtype, device=scores.device)
    own, others = counts
    first = levels * torch.arange(K, device=scores.device).unsqueeze(1)
    for s, label in _chunks(scores.detach(), labels):
        labelled = label != ignore_index
        label = (label * labelled).long()
        shifted = s + rho_0k.unsqueeze(1)
        shifted.scatter_(0, label, s.gather(0, label) - rho_k0[label])
        p = (nats * shifted).softmax(0)
        of_label = p.gather(0, label)
        # Scores that are not finite are no error of any level.
        counted = (labelled & of_label.isfinite()).to(dtype)
        # All pixels as if others', then the class's own put right.
        place = level_of(p, levels) + first
        others.scatter_add_(
            0, place.flatten(), counted.expand_as(place).flatten()
        )
        wrong = place.gather(0, label)
        right = level_of(1 - of_label, levels) + levels * label
        others.scatter_add_(0, wrong[0], -counted[0])
        own.scatter_add_(0, right[0], counted[0])
    return counts.view(2, K, levels)


def _chunks(scores: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Few enough pixels, (K, P) and (1, P), for small intermediates."""
    if scores.dim() == 2:  # one pixel an image
        scores, labels = scores.t().unsqueeze(0), labels.unsqueeze(0)
    for s, label in zip(scores, labels, strict=True):
        yield from zip(
            s.flatten(1).split(CHUNK_PIXELS, 1),
            label.reshape(1, -1).split(CHUNK_PIXELS, 1),
            strict=True,
        )


def level_of(error: Tensor, levels: int) -> Tensor:
    """The level of an error in [0, 1]; anything else stays inside too."""
    # 32 bits are converted faster than 64.
    return (error * levels).to(torch.int32).clamp_(0, levels - 1).long()
