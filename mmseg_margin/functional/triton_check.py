"""Checks the Triton kernels on a device before their first use there.

Kernels can be wrong, or fail to compile, on a GPU, a driver or a version of
triton on which they were not tested. So the first use on a device solves a
small fixed problem both with the kernels and with the eager ones on the CPU,
in float64.
"""

import functools
import logging
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .jaccard import LEVELS, JaccardObjective
from .margin import MarginObjective
from .settings import MarginSettings
from .softmax import CrossEntropy
from .stage import run_stage

K = 5
UPSTREAM = 3.0
TOLERANCE = 1e-4
# Rounding may move an error across the border of two levels.
MOVED_ERRORS = 2e-3

logger = logging.getLogger('mmseg_margin')


@functools.cache
def kernels_match_reference(
    device: torch.device,
    scale: int = 4,
    dtype: torch.dtype = torch.float32,
    losses: tuple[str, ...] = ('margin', 'jaccard', 'cross_entropy'),
) -> bool:
    """Whether the kernels give the right results on a device.

    One warning per process says what went wrong. Out-of-memory errors are
    raised, because they say nothing about the kernels.

    Args:
        device: Where to run the kernels.
        scale: Scale of the up-sampling; kernels are compiled for each.
        dtype: Type of the scores; kernels are compiled for each.
        losses: Which kernels to run.
    """
    try:
        seen = find_difference(device, scale, dtype, losses)
    except Exception as error:
        is_full = isinstance(error, torch.OutOfMemoryError)
        if is_full or 'out of memory' in str(error):
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


# The caller may have disabled gradients.
@torch.inference_mode(False)
@torch.enable_grad()
def find_difference(
    device: torch.device,
    scale: int,
    dtype: torch.dtype,
    losses: tuple[str, ...],
) -> str:
    """The first result that is wrong, in words; '' if there is none."""
    scores, *others = fixed_batch(scale, dtype)
    batch = [x.to(device) for x in (scores, *others)]
    tolerance = TOLERANCE + 4 * torch.finfo(dtype).eps
    for name in losses:
        histograms: list[Tensor] = []
        reduce = functools.partial(use_first, histograms)
        objective = {
            'margin': MarginObjective(
                torch.linspace(0.1, 2, K),
                torch.linspace(-1, 1, K),
                MarginSettings(3.0, 'e', class_mean=True),
            ),
            'jaccard': JaccardObjective(0.5, reduce, softness=0.5),
            'cross_entropy': CrossEntropy(gamma=2.0),
        }[name]
        expected = solve(objective, 'eager', [scores.double(), *others])
        found = solve(objective, 'triton', batch)
        if histograms:
            first, second = (x[..., :LEVELS] for x in histograms)
            moved = (second - first).abs().sum() // 2
            if moved > 2 + MOVED_ERRORS * first.sum():
                return f'{moved} errors of {name} have a wrong level'
        for what, value in expected.items():
            # One error at another level changes the largest difference far
            # more than the norm.
            difference = (found[what].cpu().double() - value).norm()
            off = float(difference / value.norm())
            if not off <= (0 if what == 'hits' else tolerance):
                return f'{what} of {name} is off by {off:.2g}'
    return ''


def use_first(histograms: list[Tensor], found: Tensor) -> None:
    """Keep the histograms, but compute with the first ones.

    Then an error at another level has no influence on loss and gradient.
    """
    histograms.append(found.cpu().clone())
    found.copy_(histograms[0])


def fixed_batch(
    scale: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores (2, K, 3, 4), labels and weights (2, 3 S, 4 S).

    Always the same, without a random number generator.
    """
    shape = (2, 3 * scale, 4 * scale)
    number = torch.arange(2 * K * 3 * 4, dtype=torch.float64)
    scores = 3 * torch.sin(1.64 * number + 0.1 * number.sqrt())
    pixel = torch.arange(math.prod(shape)).view(shape)
    labels = (pixel * pixel // 3 + pixel // 7) % (K + 1)
    return (
        scores.view(2, K, 3, 4).to(dtype),
        labels.masked_fill(labels == K, 255),
        1 + 0.5 * torch.sin(pixel.float()),
    )


def solve(
    objective: Any, backend: str, batch: Sequence[Tensor]
) -> dict[str, Tensor]:
    """Loss, hits and gradient."""
    scores, labels, weight = batch
    leaf = scores.detach().requires_grad_()
    result = run_stage(
        leaf,
        labels,
        objective,
        pixel_weight=weight,
        align_corners=False,
        backend=backend,
    )
    upstream = torch.full_like(result.loss, UPSTREAM)
    (gradient,) = torch.autograd.grad(result.loss, leaf, upstream)
    loss, hits = result.loss.detach(), result.hits.double()
    return dict(loss=loss, hits=hits, gradient=gradient)
