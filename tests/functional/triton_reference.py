"""The losses of the Triton kernels in differentiable torch."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mmseg_margin.functional import pixel_margins
from mmseg_margin.functional.jaccard import jaccard_weights


class Batch(NamedTuple):
    """Scores (N, K, h, w), labels and weights (N, S h, S w), offsets (K,)."""

    scores: Tensor
    labels: Tensor
    weight: Tensor | None
    rho_0k: Tensor
    rho_k0: Tensor

    @property
    def scale(self) -> int:
        return self.labels.shape[1] // self.scores.shape[2]

    @property
    def classes(self) -> Tensor:
        """Labels, 0 where ignored."""
        return self.labels.long().masked_fill(~self.known, 0)

    @property
    def known(self) -> Tensor:
        return self.labels != 255

    @property
    def is_label(self) -> Tensor:
        """Whether each class is the label of each pixel, (N, K, H, W)."""
        one_hot = F.one_hot(self.classes, self.scores.shape[1])
        return one_hot.movedim(3, 1).bool()


def make_batch(
    N: int,
    K: int,
    h: int,
    w: int,
    S: int,
    dtype: torch.dtype = torch.float32,
    label_dtype: torch.dtype = torch.int64,
) -> Batch:
    """A fifth of the labels is ignored."""
    random = torch.Generator().manual_seed(N + K + h + w + S)
    size = (N, S * h, S * w)
    labels = torch.randint(0, K, size, generator=random)
    labels[torch.rand(size, generator=random) < 0.2] = 255
    return Batch(
        (3 * torch.randn(N, K, h, w, generator=random)).to(dtype),
        labels.to(label_dtype),
        0.1 + torch.rand(size, generator=random),
        2 * torch.randn(K, generator=random),
        2 * torch.randn(K, generator=random),
    )


def upsample(scores: Tensor, scale: int) -> Tensor:
    if scale == 1:
        return scores
    return F.interpolate(scores, scale_factor=scale, mode='bilinear')


def margin_loss(
    scores: Tensor,
    batch: Batch,
    pos_weight: float,
    neg_weight: float,
    bits: float,
) -> Tensor:
    """Eq. 16 of each pixel."""
    margin = bits * pixel_margins(scores)
    rho_0k, rho_k0 = (
        rho.double().view(1, -1, 1, 1) for rho in (batch.rho_0k, batch.rho_k0)
    )
    is_label = batch.is_label
    x = torch.where(is_label, rho_k0 - margin, rho_0k + margin)
    weight = torch.where(is_label, pos_weight, neg_weight)
    terms = weight * torch.logaddexp2(x, torch.zeros_like(x))
    return terms.sum(1) / bits


def level_of(error: Tensor) -> Tensor:
    """16 levels per octave of the odds, linear within an octave."""
    exponent = (error / (1 - error)).log2().clamp(-16, 15.9999)
    octave = exponent.floor()
    mantissa = 2 ** (exponent - octave)
    return (16 * (octave + 16) + (16 * (mantissa - 1)).floor()).long()


def error_counts(scores: Tensor, batch: Batch, step: int) -> Tensor:
    """Own and others' errors, (2, K, levels, sum, pixels)."""
    K, L = scores.shape[1], 512
    p, is_label = scores.softmax(1), batch.is_label
    error = torch.where(is_label, 1 - p, p)
    counts = torch.zeros(2, K, L + 2, dtype=torch.float64)
    for n, y, x in batch.known.nonzero().tolist():
        grid = batch.labels[n, ::step, ::step]
        few = (grid == batch.labels[n, y, x]).sum() < 64
        on_grid = y % step == 0 and x % step == 0
        weight = 1 if few or step == 1 else step**2 * on_grid
        for k in range(K):
            row = counts[int(not is_label[n, k, y, x]), k]
            row[level_of(error[n, k, y, x])] += weight
            row[L] += weight * error[n, k, y, x] * 2**32
            row[L + 1] += bool(is_label[n, k, y, x])
    return counts.long()


def jaccard_loss(
    scores: Tensor, batch: Batch, counts: Tensor, softness: float
) -> Tensor:
    """Of each pixel, without the cross-entropy, given the counts."""
    tables = jaccard_weights(counts, torch.float64, softness)
    is_label, p = batch.is_label, scores.softmax(1)
    error = torch.where(is_label, 1 - p, p)
    row = torch.arange(counts.shape[1]).view(1, -1, 1, 1)
    weight = tables[(~is_label).long(), row, level_of(error.detach())]
    return (weight * error).sum(1)


def cross_entropy(scores: Tensor, batch: Batch, gamma: float = 0) -> Tensor:
    """Of each pixel; focal loss with a gamma above 0."""
    loss = F.cross_entropy(scores, batch.classes, reduction='none')
    return (1 - torch.exp(-loss)) ** gamma * loss
