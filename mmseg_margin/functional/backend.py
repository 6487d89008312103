"""Runs the fused stages over any tensor: compiled or eager, in chunks.

A chunk is copied next to each other before it is worked on, because the
classes of a pixel lie an image apart and would evict each other from the
cache. Its size is fixed and the last one is padded, so that the compiler sees
one shape for each number of classes, whatever the images' sizes.
"""

import functools
import logging
import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .fused import (
    AS_THEY_ARE,
    Classes,
    Stages,
    TermRules,
    log1p_of_fraction,
    loss_and_gradient,
)

BACKENDS = ('auto', 'compiled', 'eager')
# Pixels of a chunk for each thread: enough to outweigh the cost of a call, few
# enough for the cache, and no power of two, whose rows evict each other.
EAGER_PIXELS, COMPILED_PIXELS = 4080, 16320
# Above this the unrolled loops of all stages are too long to compile at once.
UNROLLED_CLASSES = 32

logger = logging.getLogger('mmseg_margin')


def choose_backend(device: torch.device, backend: str = 'auto') -> str:
    """``'compiled'`` where a compiler for the device is present."""
    if backend not in BACKENDS:
        raise ValueError(f'backend={backend!r} is not one of {BACKENDS}.')
    if backend != 'auto':
        return backend
    return 'compiled' if _has_compiler(device.type) else 'eager'


@functools.cache
def _has_compiler(device_type: str) -> bool:
    if device_type == 'cuda':
        return find_spec('triton') is not None
    names = [os.environ.get('CXX', ''), 'g++', 'clang++']
    return device_type == 'cpu' and any(map(shutil.which, filter(None, names)))


Kernel = Callable[..., tuple[Tensor, list[Tensor]]]


class Plan(NamedTuple):
    """How to work through a tensor; ``pixels`` is None for whole images."""

    kernel: Kernel
    objective: TermRules
    pixels: int | None


@functools.cache
def make_plan(
    backend: str, objective: TermRules, num_classes: int, device_type: str
) -> Plan:
    threads = torch.get_num_threads()
    if device_type != 'cpu':
        # A GPU fuses reductions over the classes by itself.
        whole = objective._replace(block=num_classes)
        if backend == 'eager':
            return Plan(loss_and_gradient, whole, None)
        compiled = torch.compile(loss_and_gradient, dynamic=True)
        return Plan(_or_eager(compiled), whole, None)
    if backend == 'eager':
        eager = objective._replace(block=num_classes)
        return Plan(loss_and_gradient, eager, EAGER_PIXELS * threads)
    unrolled = objective._replace(block=1, log1p=log1p_of_fraction)
    return Plan(_compile_for(num_classes), unrolled, COMPILED_PIXELS * threads)


def _compile_for(num_classes: int) -> Kernel:
    if num_classes <= UNROLLED_CLASSES:
        return _or_eager(torch.compile(loss_and_gradient, dynamic=False))
    divisors = (
        d for d in range(8, UNROLLED_CLASSES + 1) if num_classes % d == 0
    )
    return _or_eager(
        functools.partial(
            loss_and_gradient,
            stages=Stages(
                *(torch.compile(f, dynamic=False) for f in AS_THEY_ARE)
            ),
            group=max(divisors, default=16),
        )
    )


def _or_eager(kernel: Kernel) -> Kernel:
    """The kernel, or its eager twin from the moment compiling it failed."""

    def run_or_fall_back(*args):
        nonlocal kernel
        try:
            return kernel(*args)
        except RuntimeError as error:
            if kernel is loss_and_gradient:
                raise
            logger.warning(
                'torch.compile failed, so the margin loss runs eagerly, '
                'which is slower: %s',
                str(error).strip().split('\n')[0],
            )
            kernel = loss_and_gradient
            return kernel(*args)

    return run_or_fall_back


class PixelLoss(torch.autograd.Function):
    """Per-pixel loss whose gradient was computed along with it."""

    @staticmethod
    def forward(ctx, scores, labels, classes, objective, backend):
        loss, ctx.gradient = run(scores, labels, classes, objective, backend)
        ctx.save_for_backward(scores, labels)
        ctx.arguments = (classes, objective, backend)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream):
        # The stored gradient is scaled in place and handed on; only a second
        # backward through a retained graph has to compute it again.
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:
            scores, labels = ctx.saved_tensors
            _, gradient = run(scores, labels, *ctx.arguments)
        return gradient.mul_(upstream.unsqueeze(1)), None, None, None, None


def run(
    scores: Tensor,
    labels: Tensor,
    classes: Classes,
    objective: TermRules,
    backend: str,
) -> tuple[Tensor, Tensor]:
    """Loss (N, ...) and gradient (N, K, ...) of scores and labels."""
    N, K = scores.shape[:2]
    kernel, objective, size = make_plan(
        backend, objective, K, scores.device.type
    )
    flat_scores = scores.reshape(N, K, -1)
    flat_labels = labels.reshape(N, 1, -1)
    pixels = flat_scores.shape[2]
    dtype = classes.rho_0k.dtype
    loss = torch.empty_like(flat_labels, dtype=dtype)
    gradient = torch.empty_like(flat_scores)
    size = size or pixels
    chunk = torch.zeros(1, K, size, dtype=dtype, device=scores.device)
    chunk_labels = torch.full_like(
        chunk[:, :1], objective.ignore_index, dtype=torch.int32
    )
    for n in range(N):
        for start in range(0, pixels, size):
            here = slice(start, min(start + size, pixels))
            used = slice(0, here.stop - start)
            chunk[0, :, used] = flat_scores[n, :, here]
            chunk_labels[0, :, used] = flat_labels[n, :, here]
            part, part_gradient = kernel(
                chunk, chunk_labels, classes, objective
            )
            loss[n, :, here] = part[0, :, used]
            first = 0
            for group in part_gradient:
                last = first + group.shape[1]
                gradient[n, first:last, here] = group[0, :, used]
                first = last
    return loss.view(labels.shape), gradient.view(scores.shape)
