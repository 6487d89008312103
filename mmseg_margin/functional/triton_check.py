"""Checks the Triton kernels on a device before their first use there.

Kernels can be wrong, or fail to compile, on a GPU, a driver or a version of
triton on which they were not tested. So the first use on a device solves a
small fixed problem both with the kernels and with plain torch on the CPU, in
float64 and with autograd.
"""

import functools
import logging
import math

import torch
import torch.nn.functional as F

from .triton_problem import CASES, Problem

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


# The caller may have disabled gradients or enabled autocast.
@torch.inference_mode(False)
@torch.enable_grad()
@torch.autocast('cpu', enabled=False)
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
