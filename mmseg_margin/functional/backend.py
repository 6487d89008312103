"""Which kernel runs where: Triton, compiled or eager, and on how many pixels.

Each piece of pixels is copied into contiguous memory before the kernel runs,
because the scores of one pixel lie an image apart and would evict each other
from the cache. Kernels are compiled for a dynamic number of pixels, so that
one kernel serves all image sizes.
"""

import functools
import logging
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple, ParamSpec, Protocol, TypeVar

import torch
from torch import Tensor

from mmseg_margin.errors import MissingPackageError, one_of, require

P = ParamSpec('P')
R = TypeVar('R')
BACKENDS = ('auto', 'triton', 'compiled', 'eager')
# From this many scores on, a compiled kernel saves more time in a few hundred
# steps than its compilation takes.
COMPILE_FROM = 2**22
# Scores of a piece per thread, few enough for the cache, and the fewest pixels
# that make the overhead of a call negligible. A GPU needs more of both.
EAGER_SCORES, EAGER_PIXELS = 230_000, 2_040
COMPILED_SCORES, COMPILED_PIXELS = 310_000, 4_080
GPU_SCORES, GPU_PIXELS = 8_000_000, 65_536

logger = logging.getLogger('mmseg_margin')


class Pixels(NamedTuple):
    """P pixels in contiguous memory; ignored ones have a negative label."""

    scores: Tensor  # (K, P)
    labels: Tensor  # (1, P)
    weight: Tensor  # (1, P)


class StageResult(NamedTuple):
    """What a kernel computes for P pixels, and a stage for a batch."""

    loss: Tensor  # weight times loss, of each pixel or summed
    hits: Tensor  # number of pixels whose label is the argmax of the scores
    gradient: Any = None  # of the summed loss, (K, P) for a kernel
    # Of JaccardObjective only: the sum of weight times cross-entropy, and
    # what the classes (K,) add to the soft Jaccard loss of the batch.
    ce: Tensor | None = None
    jaccard: Tensor | None = None
    # The compiler stores intermediates that are returned, and would recompute
    # them in each loop otherwise.
    stored: tuple[Tensor, ...] = ()


class PixelObjective(Protocol):
    """What is computed for each pixel; ignored ones have the weight 0."""

    name: ClassVar[str]  # the key in triton_check.kernels_match_reference

    def numbers(self, num_classes: int) -> tuple[float, ...]:
        """Settings that are part of a compiled kernel."""

    def constants(self, like: Tensor, source: Any) -> tuple:
        """What else a kernel needs, for scores like (N, K, ...).

        It may depend on the source of all pixels, see :mod:`.upsampling`; the
        kernel gets class numbers (K, 1) before it.
        """

    @staticmethod
    def eager(pixels: Pixels, constants: tuple, numbers: tuple) -> StageResult:
        """In few passes: overwrites intermediates, indexes by the label."""

    @staticmethod
    def fusible(
        pixels: Pixels, constants: tuple, numbers: tuple
    ) -> StageResult:
        """The same for a compiler, without indexing, which splits loops."""

    def triton_stage(
        self,
        scores: Tensor,
        labels: Tensor,
        weight: Tensor | None,
        ignore_index: int,
        per_pixel: bool,
    ) -> StageResult:
        """The stage on a GPU; its gradient is in planes."""


Kernel = Callable[[Pixels, tuple], StageResult]


def class_numbers(like: Tensor) -> Tensor:
    """0 to K - 1, (K, 1), beside scores (N, K, ...)."""
    numbers = torch.arange(
        like.shape[1], dtype=torch.int32, device=like.device
    )
    return numbers.unsqueeze(1)


def select_label(mask: Tensor, x: Tensor) -> Tensor:
    """The values (K, P) where the mask is set, summed over K, (1, P)."""
    return torch.where(mask, x, 0.0).sum(0, keepdim=True)


def count_hits(
    scores: Tensor, labels: Tensor, is_top: Tensor, may_tie: Tensor
) -> Tensor:
    """Number of pixels whose label is the argmax of the scores (K, P).

    Args:
        scores: (K, P).
        labels: (1, P).
        is_top: Whether no score is above the label's, (1, P).
        may_tie: Whether another class may have the same score, (1, P). The
            argmax takes far longer than the maximum, so that only these
            pixels need it.
    """
    is_top = is_top & (labels >= 0)
    if scores.device.type != 'cpu':
        return (is_top & (scores.argmax(0) == labels)).sum()
    hits = is_top.sum()
    at = (is_top & may_tie).flatten().nonzero().flatten()
    scores = scores.index_select(1, at)
    is_tied = (scores == scores.amax(0)).sum(0) > 1
    if is_tied.any():
        label = labels[0, at[is_tied]]
        hits -= (scores[:, is_tied].argmax(0) != label).sum()
    return hits


def fusible_hits(scores: Tensor, labels: Tensor, number: Tensor) -> Tensor:
    """The same for a compiler: the first of the top classes is the argmax."""
    is_top = scores == scores.amax(0, keepdim=True)
    first = torch.where(is_top, number, len(scores)).amin(0, keepdim=True)
    return (first == labels).sum()


def choose_backend(
    device: torch.device, backend: str = 'auto', scores: int = COMPILE_FROM
) -> str:
    """Resolve ``'auto'`` for a device and a number of scores."""
    require('backend', backend, *one_of(BACKENDS))
    if backend == 'triton' and not _has_triton():
        raise MissingPackageError(
            "backend='triton' needs the package triton, which is not "
            "installed: run pip install triton, or leave backend='auto'."
        )
    if backend != 'auto':
        return backend
    if device.type == 'cuda' and _has_triton():
        return 'triton'
    return choose_without_triton(device, scores)


def choose_without_triton(device: torch.device, scores: int) -> str:
    """The same where the Triton kernels cannot be used."""
    if device.type == 'cpu' and scores < COMPILE_FROM:
        return 'eager'
    return 'compiled' if _has_compiler(device.type) else 'eager'


@functools.cache
def _has_triton() -> bool:
    return find_spec('triton') is not None


@functools.cache
def _has_compiler(device_type: str) -> bool:
    if device_type == 'cuda':
        return _has_triton()
    names = [os.environ.get('CXX', ''), 'g++', 'clang++']
    return device_type == 'cpu' and any(map(shutil.which, filter(None, names)))


def choose_kernel(
    objective: PixelObjective, like: Tensor, backend: str
) -> tuple[Kernel, int]:
    """The kernel for scores like (N, K, ...), and its pixels at once."""
    K, device = like.shape[1], like.device
    compiled = backend == 'compiled'
    threads = torch.get_num_threads()
    if device.type != 'cpu':
        size = max(GPU_SCORES // K, GPU_PIXELS)
    elif compiled:
        size = threads * max(COMPILED_SCORES // K, COMPILED_PIXELS)
    else:
        size = threads * max(EAGER_SCORES // K, EAGER_PIXELS)
    kind, numbers = type(objective), objective.numbers(K)
    kernel: Kernel = functools.partial(kind.eager, numbers=numbers)
    if compiled:
        double = like.dtype == torch.float64
        kernel = _compile(kind, numbers, K, double, device.type)
    return kernel, size


@functools.cache
def _compile(
    kind: type[PixelObjective],
    numbers: tuple[float, ...],
    num_classes: int,
    double: bool,
    device_type: str,
) -> Kernel:
    """One compiled kernel for each variant, or the eager one."""

    def variant(pixels, constants):
        return kind.fusible(pixels, constants, numbers)

    # torch.compile gives up after eight variants of one code object, so each
    # variant gets its own.
    parts = (kind.__name__, *numbers, num_classes, double)
    variant.__code__ = variant.__code__.replace(
        co_name='_'.join(map(str, parts))
    )
    compiled: Kernel = torch.compile(
        variant,
        dynamic=False,
        # Levels of error are clamped, so no check of the index is needed.
        options={'assert_indirect_indexing': False},
    )
    failed = False

    def run_or_fall_back(pixels, constants):
        nonlocal failed
        if failed:
            return kind.eager(pixels, constants, numbers)
        if pixels.labels.numel() > 1:
            # In every call, because another number of threads, or inference
            # mode, triggers recompilation, which has to be dynamic too.
            for per_pixel in pixels:
                torch._dynamo.mark_dynamic(per_pixel, 1)
        try:
            return compiled(pixels, constants)
        except (OSError, RuntimeError) as error:
            if not _is_compile_error(error):
                raise
            failed = True
            logger.warning(
                'torch.compile failed, so the loss runs eagerly, which is '
                'slower: %s',
                str(error).strip().split('\n')[0],
            )
            return kind.eager(pixels, constants, numbers)

    return run_or_fall_back


def _is_compile_error(error: Exception) -> bool:
    """Raised by the compiler or its cache folder, not by the kernel itself."""
    origin = type(error).__module__
    return isinstance(error, OSError) or origin.startswith(
        ('torch._dynamo', 'torch._inductor')
    )


def no_autocast(device: torch.device) -> AbstractContextManager:
    """Context manager: computes in the given types, on any device."""
    if torch.amp.is_autocast_available(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """``torch.compiler.disable``, applied when the function is called.

    Applied at import, it would import the whole compiler, which takes longer
    than the rest of this package's import.
    """
    disabled: list[Callable[P, R]] = []

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not disabled:
            disabled.append(torch.compiler.disable(function))
        return disabled[0](*args, **kwargs)

    # torch.compile checks this attribute before it traces a call.
    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call
