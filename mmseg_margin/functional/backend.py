"""Which kernel runs where: compiled or eager, and on how many pixels at once.

A chunk of pixels is copied next to each other before it is worked on, because
the classes of a pixel lie an image apart and would evict each other from the
cache. The number of pixels is left open when a kernel is compiled, so that
one serves all sizes of images.
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

from mmseg_margin.errors import SettingError

from . import eager, kernels
from .kernels import Classes, PixelTerms, Rules

BACKENDS = ('auto', 'compiled', 'eager')
# Scores of a chunk for each thread: few enough for the cache, and pixels
# enough to outweigh the cost of a call. A GPU wants more of both.
EAGER_SCORES, EAGER_PIXELS = 230_000, 2_040
COMPILED_SCORES, COMPILED_PIXELS = 310_000, 4_080
GPU_SCORES, GPU_PIXELS = 8_000_000, 65_536

logger = logging.getLogger('mmseg_margin')
Kernel = Callable[[Tensor, Tensor, Tensor, Classes], PixelTerms]


def choose_backend(device: torch.device, backend: str = 'auto') -> str:
    """``'compiled'`` where a compiler for the device is present."""
    if backend not in BACKENDS:
        raise SettingError(f'backend={backend!r} is not one of {BACKENDS}.')
    if backend != 'auto':
        return backend
    return 'compiled' if _has_compiler(device.type) else 'eager'


@functools.cache
def _has_compiler(device_type: str) -> bool:
    if device_type == 'cuda':
        return find_spec('triton') is not None
    names = [os.environ.get('CXX', ''), 'g++', 'clang++']
    return device_type == 'cpu' and any(map(shutil.which, filter(None, names)))


class Plan(NamedTuple):
    """A kernel, and how many pixels to give it at once."""

    kernel: Kernel
    pixels: int


def make_plan(rules: Rules, scores: Tensor, backend: str) -> Plan:
    """How to work through scores (N, K, ...)."""
    K, device = scores.shape[1], scores.device
    compiled = choose_backend(device, backend) == 'compiled'
    if device.type != 'cpu':
        pixels = max(GPU_SCORES // K, GPU_PIXELS)
    else:
        pixels = torch.get_num_threads() * (
            max(COMPILED_SCORES // K, COMPILED_PIXELS)
            if compiled
            else max(EAGER_SCORES // K, EAGER_PIXELS)
        )
    if not compiled:
        return Plan(_bind(eager.loss_and_gradient, rules), pixels)
    double = scores.dtype == torch.float64
    return Plan(_compile(rules, K, double, device.type), pixels)


def _bind(function: Callable[..., PixelTerms], rules: Rules) -> Kernel:
    def kernel(scores, labels, weight, classes):
        return function(scores, labels, weight, classes, rules)

    return kernel


@functools.cache
def _compile(
    rules: Rules, num_classes: int, double: bool, device_type: str
) -> Kernel:
    """One compiled kernel for each variant, or its eager twin."""
    kernel = _bind(kernels.loss_and_gradient, rules)
    fallback = _bind(eager.loss_and_gradient, rules)
    # The compiler counts its variants by the code object and gives up after
    # eight; so each variant has a code object of its own.
    name = '_'.join(map(str, ('kernel', *rules, num_classes, double)))
    kernel.__code__ = kernel.__code__.replace(co_name=name)
    compiled = torch.compile(
        kernel,
        dynamic=False,
        # The levels of the Jaccard form are clamped.
        options={'assert_indirect_indexing': False},
    )

    # Whether there is a kernel for any number of pixels.
    is_open = False

    def run_or_fall_back(scores, labels, weight, classes):
        nonlocal compiled, is_open
        if not is_open and scores.shape[1] > 1:
            for per_pixel in (scores, labels, weight):
                torch._dynamo.mark_dynamic(per_pixel, 1)
            is_open = True
        try:
            return compiled(scores, labels, weight, classes)
        except RuntimeError as error:
            if compiled is fallback:
                raise
            logger.warning(
                'torch.compile failed, so the margin loss runs eagerly, '
                'which is slower: %s',
                str(error).strip().split('\n')[0],
            )
            compiled = fallback
            return fallback(scores, labels, weight, classes)

    return run_or_fall_back
