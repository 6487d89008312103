"""The loss stage of a head on a GPU, in three or six kernel launches.

Up-sampling, loss, gradient and hits, without full-size scores and without
waiting for the device. Nothing here takes part in autograd: the gradient is
computed along with the loss, and :meth:`.Planes.combine` finishes it in the
backward pass. The kernels of each loss are in :mod:`.triton_margin`,
:mod:`.triton_jaccard` and :mod:`.triton_softmax`; they are imported where
they are used, because triton is an optional dependency.
"""

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .backend import StageResult

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
NODES_PER_PROGRAM = 1024
PROGRAMS_AT_ONCE = 256
# A fused multiplication and addition is one instruction instead of two.
OPTIONS = dict(num_warps=4, enable_fp_fusion=True)


def supports(scores: Tensor, labels: Tensor, align_corners: bool) -> bool:
    """Whether the kernels can up-sample these scores to these labels.

    The scale has to be a whole number, the same in both directions, and
    without aligned corners.
    """
    if scores.dim() != 4 or labels.dim() != 3 or not scores.numel():
        return False
    N, _, h, w = scores.shape
    S = labels.shape[1] // h
    return (
        scores.dtype in DTYPES
        and not labels.is_floating_point()
        and labels.shape == (N, S * h, S * w)
        and (S == 1 or (S > 1 and not align_corners))
    )


def launch(
    kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any
) -> None:
    """Start a kernel on the device of its first argument."""
    with torch.cuda.device_of(arguments[0]):
        kernel[grid](*arguments, **constants, **OPTIONS)


class Planes(NamedTuple):
    """Sums of the gradient for each cell of pixels, see triton_cells.py.

    Args:
        values: (planes, N, K, cells), float32.
        shape: Of the scores, (N, K, h, w).
        dtype: Of the scores.
        scale: Pixels per node in each direction.
    """

    values: Tensor
    shape: torch.Size
    dtype: torch.dtype
    scale: int

    def combine(self, upstream: Tensor) -> Tensor:
        """The gradient with respect to the scores, times a 0-dim tensor."""
        from .triton_cells import combine

        N, K, h, w = self.shape
        gradient = self.values.new_empty(self.shape, dtype=self.dtype)
        launch(
            combine,
            (N * K, -(-h * w // NODES_PER_PROGRAM)),
            *(self.values, upstream, gradient, h, w),
            S=self.scale,
            BLOCK=NODES_PER_PROGRAM,
        )
        return gradient


class Stage:
    """A batch for the kernel of a loss.

    Args:
        scores: (N, K, h, w).
        labels: (N, S h, S w), integers; one that is no class gives NaN.
        weight: Weight of each pixel, (N, S h, S w).
        ignore_index: Label of the pixels that are left out.
        per_pixel: Whether to return the loss of each pixel, not the sum.
    """

    def __init__(
        self,
        scores: Tensor,
        labels: Tensor,
        weight: Tensor | None = None,
        ignore_index: int = 255,
        per_pixel: bool = False,
    ) -> None:
        self.scores = scores.detach().contiguous()
        self.labels = labels.contiguous()
        self.weight = None if weight is None else weight.detach().contiguous()
        self.ignore_index = ignore_index
        self.scale = labels.shape[1] // scores.shape[2]
        self.pixel_loss = None
        if per_pixel:
            self.pixel_loss = labels.new_empty(
                labels.shape, dtype=torch.float32
            )

    def run(
        self, kernel: Any, *arguments: Any, **constants: Any
    ) -> StageResult:
        """Run the kernel of a loss, and sum the results of its programs."""
        from . import triton_cells as cells

        S, scores = self.scale, self.scores
        N, K, h, w = scores.shape
        outside = cells.outside_of(S)
        num_cells = (h + outside) * (w + outside)
        threads = num_cells * cells.threads_of_cell(S)
        programs = -(-threads // cells.THREADS.value)
        num_planes = 1 if S == 1 else 4 * cells.parts_of(S)
        new = functools.partial(scores.new_empty, dtype=torch.float32)
        planes = new((num_planes, N, K, num_cells))
        sums = new((4, N * programs))
        # The stride of a column, 1, is not a compile-time constant, or the
        # kernel would load labels in another layout than it needs.
        launch(
            kernel,
            (programs, N),
            *(scores, self.labels, self.weight),
            *(planes, sums, self.pixel_loss),
            *(h, w, K, 1, self.ignore_index),
            *arguments,
            S=S,
            **constants,
        )
        losses, hits = new(2), new((), dtype=torch.int64)
        launch(
            cells.finish,
            (1,),
            *(sums, losses, hits, N * programs),
            BLOCK=PROGRAMS_AT_ONCE,
        )
        loss, ce = losses
        if self.pixel_loss is not None:
            # An invalid label makes the sum NaN, so every pixel's loss too.
            loss = self.pixel_loss + (loss - loss)
        gradient = Planes(planes, scores.shape, scores.dtype, S)
        return StageResult(loss, hits, gradient, ce)
