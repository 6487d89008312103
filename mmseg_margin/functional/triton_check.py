"""A kernel that has never run on this device proves itself first.

Kernels can be wrong, or fail to compile, on a GPU, a driver or a version of
triton that nobody has tried. So the first use on a device runs a small fixed
problem through the kernels and through plain torch on the CPU, in float64 and
with autograd.
"""

import functools
import logging
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
UPSTREAM = 3.0
TOLERANCE = 1e-4

logger = logging.getLogger('mmseg_margin')


@functools.cache
def proven(
    device: torch.device,
    scale: int = 4,
    dtype: torch.dtype = torch.float32,
    losses: tuple[str, ...] = ('margin', 'jaccard', 'cross_entropy'),
) -> bool:
    """Whether the kernels give the right results on a device.

    Says in one warning what went wrong, once a process. Out of memory is
    raised, because it says nothing about the kernels.

    Args:
        device: Where to run the kernels.
        scale: Scale of the up-sampling, which kernels are compiled for.
        dtype: Type of the scores, which kernels are compiled for.
        losses: Which kernels to run.
    """
    try:
        seen = find_difference(device, scale, dtype, losses)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        if 'out of memory' in str(error):
            raise
        first_line = str(error).strip().split('\n')[0]
        seen = f'{type(error).__name__}: {first_line}'
    if seen:
        logger.warning(
            'The Triton kernels do not work on %s (%s), so slower code is '
            'used instead. Please report this line with your GPU, driver, '
            'torch and triton versions.',
            device,
            seen,
        )
    return not seen


def find_difference(
    device: torch.device,
    scale: int,
    dtype: torch.dtype,
    losses: tuple[str, ...],
) -> str:
    """The first result that is wrong, in words; '' if there is none."""
    problem = Problem.of(scale, dtype)
    tolerance = TOLERANCE + 4 * torch.finfo(dtype).eps
    for loss in losses:
        run, reference = CASES[loss]
        result = run(problem.to(device))
        upstream = torch.tensor(UPSTREAM, device=device)
        gradient = result.planes.combine(upstream).cpu().double() / UPSTREAM
        # The caller may have switched off gradients or use autocast.
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autocast('cpu', enabled=False),
        ):
            leaf = problem.scores.double().requires_grad_()
            scores = F.interpolate(
                leaf,
                scale_factor=float(scale),
                mode='bilinear',
                align_corners=False,
            )
            value = (problem.weight * reference(scores, problem)).sum()
            (expected,) = torch.autograd.grad(value, leaf)
        label_score = scores.gather(1, problem.classes.unsqueeze(1))
        is_hit = label_score.squeeze(1) == scores.amax(1)
        hits = int((is_hit & problem.known).sum())
        if not math.isclose(result.loss.item(), value, rel_tol=tolerance):
            return f'loss {loss} is {result.loss:.6g}, not {value:.6g}'
        if result.hits.item() != hits:
            return f'hits of {loss} are {result.hits}, not {hits}'
        off = float((gradient - expected).abs().max() / expected.abs().max())
        if not off <= tolerance:
            return f'gradient of {loss} is off by {off:.2g}'
    return ''


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
        """So few pixels that no error is at the border of two levels."""
        return self.labels.shape[1] // self.scores.shape[2] + 1

    @property
    def known(self) -> Tensor:
        return self.labels != IGNORE

    @property
    def classes(self) -> Tensor:
        """Labels, 0 where ignored."""
        return self.labels.masked_fill(~self.known, 0)

    def is_label(self, scores: Tensor) -> Tensor:
        """Of each pixel and class, (N, K, H, W)."""
        one_hot = F.one_hot(self.classes, scores.shape[1])
        return one_hot.movedim(3, 1).bool()


def run_margin(problem: Problem) -> TritonResult:
    return triton_stages.margin_stage(
        *problem,
        pos_weight=POS_WEIGHT,
        neg_weight=NEG_WEIGHT,
        bits=BITS,
        ignore_index=IGNORE,
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
        ce_weight=CE_WEIGHT,
        levels=LEVELS,
        step=problem.step,
        ignore_index=IGNORE,
    )


def jaccard_reference(scores: Tensor, problem: Problem) -> Tensor:
    """Errors times their weights at the borders of the levels, in between
    on a straight line.
    """
    p, is_label = scores.softmax(1), problem.is_label(scores)
    error = torch.where(is_label, 1 - p, p)
    place = LEVELS * error.detach()
    level = place.long().clamp(max=LEVELS - 1)
    borders = torch.arange(LEVELS + 1)
    known = problem.known.unsqueeze(1)

    def count_above(mask: Tensor) -> Tensor:
        sample = (..., *2 * [slice(None, None, problem.step)])
        above = level[sample].unsqueeze(-1) >= borders
        return (above & mask[sample].unsqueeze(-1)).sum((0, 2, 3)).double()

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
    return triton_stages.cross_entropy_stage(
        *problem[:3], gamma=GAMMA, ignore_index=IGNORE
    )


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
