"""Common to all losses on a GPU: launches, sums and the gradient."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

NODES_A_PROGRAM = 1024
PROGRAMS_AT_ONCE = 256
# A fused multiplication and addition is one instruction instead of two.
OPTIONS = dict(num_warps=4, enable_fp_fusion=True)


class Planes(NamedTuple):
    """Sums of the gradient for each cell of pixels, see triton_cells.py.

    Args:
        values: (planes, N, K, cells), float32.
        scores: Shape of the scores, (N, K, h, w).
        dtype: Type of the scores.
        scale: Pixels per node in each direction.
    """

    values: Tensor
    scores: torch.Size
    dtype: torch.dtype
    scale: int

    def combine(self, upstream: Tensor) -> Tensor:
        """The gradient with respect to the scores, times a 0-dim tensor."""
        from . import triton_sums

        N, K, h, w = self.scores
        gradient = torch.empty(
            self.scores, dtype=self.dtype, device=self.values.device
        )
        launch(
            triton_sums.combine,
            (N * K, -(-h * w // NODES_A_PROGRAM)),
            *(self.values, upstream, gradient, h, w),
            S=self.scale,
            BLOCK=NODES_A_PROGRAM,
        )
        return gradient


class TritonResult(NamedTuple):
    """The results of a head's loss stage.

    Args:
        loss: Sum over the labelled pixels of weight times loss, 0-dim.
        ce: The cross-entropy in it, before ``ce_weight``; Jaccard only.
        hits: Labelled pixels whose label's score is the maximum, int64.
        planes: The gradient, to be combined in the backward pass.
        pixel_loss: Each pixel's weight times loss, (N, H, W), if requested.
    """

    loss: Tensor
    ce: Tensor | None
    hits: Tensor
    planes: Planes
    pixel_loss: Tensor | None


def launch(
    kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any
) -> None:
    """Start a kernel on the device of its first argument."""
    with torch.cuda.device_of(arguments[0]):
        kernel[grid](*arguments, **constants, **OPTIONS)


class Stage(NamedTuple):
    """The arguments that all losses have in common."""

    scores: Tensor
    labels: Tensor
    weight: Tensor | None
    ignore_index: int
    scale: int
    pixel_loss: Tensor | None

    @staticmethod
    def of(
        scores: Tensor,
        labels: Tensor,
        weight: Tensor | None,
        ignore_index: int,
        pixel_loss: bool,
    ) -> 'Stage':
        losses = None
        if pixel_loss:
            losses = torch.empty(
                labels.shape, dtype=torch.float32, device=labels.device
            )
        return Stage(
            scores.detach().contiguous(),
            labels.contiguous(),
            None if weight is None else weight.detach().contiguous(),
            ignore_index,
            labels.shape[1] // scores.shape[2],
            losses,
        )

    def run(
        self,
        kernel: Any,
        tensors: tuple,
        numbers: tuple = (),
        **constants: Any,
    ) -> TritonResult:
        """Run the kernel of a loss, and sum the results of its programs."""
        from . import triton_cells as cells
        from . import triton_sums

        S, scores = self.scale, self.scores
        N, K, h, w = scores.shape
        outside = cells.outside_of(S)
        num_cells = (h + outside) * (w + outside)
        threads = num_cells * cells.threads_of_cell(S)
        programs = -(-threads // cells.THREADS.value)
        new = scores.new_empty
        planes = new(
            1 if S == 1 else 4 * cells.parts_of(S),
            *(N, K, num_cells),
            dtype=torch.float32,
        )
        sums = new(3, N * programs, dtype=torch.float32)
        invalid = new(N * programs, dtype=torch.int32)
        # The stride of a column, 1, is not a compile-time constant, or the
        # kernel would load labels in another layout than it needs.
        launch(
            kernel,
            (programs, N),
            *(scores, self.labels, self.weight, *tensors),
            *(planes, sums, invalid, self.pixel_loss, *numbers),
            *(h, w, K, 1, self.ignore_index),
            S=S,
            **constants,
        )
        losses = new(2, dtype=torch.float32)
        hits = new((), dtype=torch.int64)
        launch(
            triton_sums.finish,
            (1,),
            *(sums, invalid, losses, hits, N * programs),
            BLOCK=PROGRAMS_AT_ONCE,
        )
        return TritonResult(
            losses[0],
            losses[1],
            hits,
            Planes(planes, scores.shape, scores.dtype, S),
            self.pixel_loss,
        )
