"""The losses of the Triton kernels, class by class in differentiable torch."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Batch(NamedTuple):
    """Scores (N, K, h, w), labels and weights (N, S h, S w), offsets (K,)."""

    scores: Tensor
    labels: Tensor
    weight: Tensor
    rho_0k: Tensor
    rho_k0: Tensor

    @property
    def scale(self) -> int:
        return self.labels.shape[1] // self.scores.shape[2]

    def known(self, ignore_index: int = 255) -> Tensor:
        labels = self.labels.long()
        is_class = (labels >= 0) & (labels < self.scores.shape[1])
        return is_class & (labels != ignore_index)


def make_batch(
    N: int,
    K: int,
    h: int,
    w: int,
    S: int,
    dtype: torch.dtype = torch.float32,
    label_dtype: torch.dtype = torch.int64,
    seed: int = 0,
) -> Batch:
    """A fifth of the labels is ignored."""
    random = torch.Generator().manual_seed(seed)
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
    """Eq. 16 of each pixel; the margin of Eq. 8 by its definition."""
    K = scores.shape[1]
    loss = torch.zeros_like(scores[:, 0])
    for k in range(K):
        others = [scores[:, j] for j in range(K) if j != k]
        margin = bits * (scores[:, k] - torch.stack(others).amax(0))
        of_label = log2_of_one_and_power(batch.rho_k0[k].double() - margin)
        of_other = log2_of_one_and_power(batch.rho_0k[k].double() + margin)
        loss = loss + torch.where(
            batch.labels == k, pos_weight * of_label, neg_weight * of_other
        )
    return loss / bits


def log2_of_one_and_power(x: Tensor) -> Tensor:
    return torch.logaddexp2(x, torch.zeros_like(x))


def errors(scores: Tensor, labels: Tensor) -> Tensor:
    """``1 - p_k`` where k is the label, else ``p_k``."""
    p = scores.softmax(1)
    k = torch.arange(scores.shape[1]).view(1, -1, 1, 1)
    return torch.where(labels.unsqueeze(1) == k, 1 - p, p)


def error_histograms(
    scores: Tensor, batch: Batch, levels: int, step: int
) -> Tensor:
    """Own and others' errors of every step-th row and column, (2, K, L)."""
    K = scores.shape[1]
    level = (levels * errors(scores, batch.labels)).long()
    level = level.clamp(max=levels - 1)
    counts = torch.zeros(2, K, levels, dtype=torch.int64)
    known = batch.known()
    for k in range(K):
        is_label = batch.labels == k
        for i, mask in enumerate((is_label & known, ~is_label & known)):
            found = level[:, k, ::step, ::step][mask[:, ::step, ::step]]
            counts[i, k] = torch.bincount(found, minlength=levels)
    return step * step * counts


def jaccard_loss(scores: Tensor, batch: Batch, counts: Tensor) -> Tensor:
    """Of each pixel, without the cross-entropy, given the histograms."""
    L = counts.shape[2]
    counts = counts.double()
    pixels = counts[0].sum(1)
    n, shown = pixels.sum(), (pixels > 0).sum()
    error = errors(scores, batch.labels)
    loss = torch.zeros_like(error[:, 0])
    for k in range(len(pixels)):
        if not pixels[k]:
            continue
        own, other = [], []
        for border in range(L + 1):
            missed = counts[0, k, border:].sum() / n
            union = (pixels[k] + counts[1, k, border:].sum()) / n
            own.append(1 / (shown * union))
            other.append((pixels[k] / n - missed) / (shown * union**2))
        place = L * error[:, k].detach()
        level = place.long().clamp(max=L - 1)
        weight = torch.where(
            batch.labels == k,
            on_line(torch.stack(own), place, level),
            on_line(torch.stack(other), place, level),
        )
        loss = loss + weight * error[:, k]
    return loss


def on_line(values: Tensor, place: Tensor, level: Tensor) -> Tensor:
    """Between the values at the two borders of a level."""
    slope = values[level + 1] - values[level]
    return values[level] + slope * (place - level)


def cross_entropy(scores: Tensor, batch: Batch, gamma: float = 0) -> Tensor:
    """Of each pixel; focal loss with a gamma above 0."""
    label = batch.labels.long().masked_fill(~batch.known(), 0)
    loss = F.cross_entropy(scores, label, reduction='none')
    return (1 - torch.exp(-loss)) ** gamma * loss
