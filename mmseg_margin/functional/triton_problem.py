"""A small fixed problem for the Triton kernels, and its results in torch.

The references are differentiable and slow, and follow the definitions.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from . import triton_stages
from .triton_stages import TritonResult

IGNORE = 255
LEVELS = 16
CE_WEIGHT, GAMMA = 0.5, 2.0
BITS, POS_WEIGHT, NEG_WEIGHT = 1.5, 3.0, 0.5


class Problem(NamedTuple):
    """Scores (2, 5, 3, 4), labels and weights (2, 3 S, 4 S)."""

    scores: Tensor
    labels: Tensor
    weight: Tensor
    rho_0k: Tensor
    rho_k0: Tensor

    @staticmethod
    def of(scale: int, dtype: torch.dtype) -> 'Problem':
        """Always the same, without a random number generator."""
        N, K, h, w = 2, 5, 3, 4
        size = (N, scale * h, scale * w)
        number = torch.arange(N * K * h * w, dtype=torch.float64)
        scores = 3 * torch.sin(1.64 * number + 0.1 * number.sqrt())
        pixel = torch.arange(math.prod(size))
        labels = (pixel * pixel // 3 + pixel // 7) % (K + 1)
        return Problem(
            scores.view(N, K, h, w).to(dtype),
            labels.masked_fill(labels == K, IGNORE).view(size),
            (1 + 0.5 * torch.sin(pixel.float())).view(size),
            torch.linspace(0.1, 2, K),
            torch.linspace(-1, 1, K),
        )

    def to(self, device: torch.device) -> 'Problem':
        return Problem(*(tensor.to(device) for tensor in self))

    @property
    def step(self) -> int:
        """Chosen so that no counted error is at the border of two levels."""
        return self.labels.shape[1] // self.scores.shape[2] + 1

    @property
    def known(self) -> Tensor:
        return self.labels != IGNORE

    @property
    def classes(self) -> Tensor:
        """Labels, 0 where ignored."""
        return self.labels.masked_fill(~self.known, 0)

    def is_label(self, scores: Tensor) -> Tensor:
        """Whether each class is the label of each pixel, (N, K, H, W)."""
        one_hot = F.one_hot(self.classes, scores.shape[1])
        return one_hot.movedim(3, 1).bool()


def run_margin(problem: Problem) -> TritonResult:
    return triton_stages.margin_stage(
        *problem[:3],
        IGNORE,
        rho_0k=problem.rho_0k,
        rho_k0=problem.rho_k0,
        pos_weight=POS_WEIGHT,
        neg_weight=NEG_WEIGHT,
        bits=BITS,
    )


def margin_reference(scores: Tensor, problem: Problem) -> Tensor:
    """Eq. 8 and Eq. 16."""
    top, index = scores.topk(2, dim=1)
    others = top[:, :1].expand_as(scores).scatter(1, index[:, :1], top[:, 1:])
    margin = BITS * (scores - others)
    is_label = problem.is_label(scores)
    rho_0k, rho_k0 = (
        rho.double().view(1, -1, 1, 1)
        for rho in (problem.rho_0k, problem.rho_k0)
    )
    x = torch.where(is_label, rho_k0 - margin, rho_0k + margin)
    terms = torch.logaddexp2(x, torch.zeros_like(x)) / BITS
    terms = terms * torch.where(is_label, POS_WEIGHT, NEG_WEIGHT)
    return terms.sum(1) * problem.known


def run_jaccard(problem: Problem) -> TritonResult:
    return triton_stages.jaccard_stage(
        *problem[:3],
        IGNORE,
        ce_weight=CE_WEIGHT,
        levels=LEVELS,
        step=problem.step,
    )


def jaccard_reference(scores: Tensor, problem: Problem) -> Tensor:
    """Errors times weights that are linear between the borders of levels."""
    p, is_label = scores.softmax(1), problem.is_label(scores)
    error = torch.where(is_label, 1 - p, p)
    place = LEVELS * error.detach()
    level = place.long().clamp(max=LEVELS - 1)
    borders = torch.arange(LEVELS + 1)
    known = problem.known.unsqueeze(1)

    def count_above(mask: Tensor) -> Tensor:
        is_above = (level.unsqueeze(-1) >= borders) & mask.unsqueeze(-1)
        sample = is_above[:, :, :: problem.step, :: problem.step]
        return sample.sum((0, 2, 3)).double()

    missed = count_above(is_label & known)
    n_k = missed[:, :1]
    union = (n_k + count_above(~is_label & known)).clamp(min=1)
    shown = n_k > 0
    own = shown * n_k.sum() / (shown.sum() * union)
    tables = torch.stack([own * (n_k - missed) / union, own])
    k = torch.arange(scores.shape[1]).view(1, -1, 1, 1)
    low = tables[is_label.long(), k, level]
    high = tables[is_label.long(), k, level + 1]
    weight = low + (high - low) * (place - level)
    loss = (weight * error).sum(1) * problem.known
    return loss + CE_WEIGHT * cross_entropy(scores, problem)


def run_cross_entropy(problem: Problem) -> TritonResult:
    return triton_stages.cross_entropy_stage(*problem[:3], IGNORE, gamma=GAMMA)


def cross_entropy_reference(scores: Tensor, problem: Problem) -> Tensor:
    """The focal loss."""
    loss = cross_entropy(scores, problem)
    return (1 - torch.exp(-loss)) ** GAMMA * loss


def cross_entropy(scores: Tensor, problem: Problem) -> Tensor:
    return F.cross_entropy(
        scores, problem.labels, reduction='none', ignore_index=IGNORE
    )


Run = Callable[[Problem], TritonResult]
Reference = Callable[[Tensor, Problem], Tensor]
CASES: dict[str, tuple[Run, Reference]] = {
    'margin': (run_margin, margin_reference),
    'jaccard': (run_jaccard, jaccard_reference),
    'cross_entropy': (run_cross_entropy, cross_entropy_reference),
}
