"""The loss stage of a head on a GPU, in three or six kernel launches.

Up-sampling, loss, gradient and hits, without full-size scores and without
waiting for the device. Nothing here takes part in autograd: the gradient is
computed along with the loss, and :meth:`Planes.combine` finishes it in the
backward pass. The kernels are in :mod:`.triton_margin`,
:mod:`.triton_jaccard` and :mod:`.triton_softmax`; they are imported
where they are used, because triton is an optional dependency.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
NODES_A_PROGRAM = 1024
PROGRAMS_AT_ONCE = 256


class Planes(NamedTuple):
    """Sums of the gradient for each cell of pixels, see triton_cells.py.

    Args:
        values: (planes, N, K, cells), float32.
        scores: Shape of the scores, (N, K, h, w).
        dtype: Type of the scores.
        scale: Pixels of a node in each direction.
    """

    values: Tensor
    scores: torch.Size
    dtype: torch.dtype
    scale: int

    def combine(self, upstream: Tensor) -> Tensor:
        """The gradient with respect to the scores, times a 0-dim tensor."""
        from . import triton_cells

        N, K, h, w = self.scores
        gradient = torch.empty(
            self.scores, dtype=self.dtype, device=self.values.device
        )
        launch(
            triton_cells.combine,
            (N * K, -(-h * w // NODES_A_PROGRAM)),
            *(self.values, upstream, gradient, h, w),
            S=self.scale,
            BLOCK=NODES_A_PROGRAM,
        )
        return gradient


class TritonResult(NamedTuple):
    """What a training step needs to know of a head's scores.

    Args:
        loss: Sum over the labelled pixels of weight times loss, 0-dim.
        ce: The cross-entropy in it, before ``ce_weight``; Jaccard only.
        hits: Labelled pixels whose label's score is the maximum, int64.
        labelled: Pixels whose label is a class, int64.
        planes: The gradient, to be combined in the backward pass.
        pixel_loss: Each pixel's weight times loss, (N, H, W), if asked for.
    """

    loss: Tensor
    ce: Tensor | None
    hits: Tensor
    labelled: Tensor
    planes: Planes
    pixel_loss: Tensor | None


def supports(scores: Tensor, labels: Tensor, align_corners: bool) -> bool:
    """Whether the kernels can up-sample these scores to these labels.

    The scale has to be a whole number, the same in both directions, and
    without aligned corners.
    """
    if scores.dim() != 4 or labels.dim() != 3 or not scores.numel():
        return False
    if scores.dtype not in DTYPES or labels.is_floating_point():
        return False
    h, w = scores.shape[2:]
    scale = labels.shape[1] // h
    expected = (scores.shape[0], scale * h, scale * w)
    if labels.shape != expected or scale < 1:
        return False
    return scale == 1 or not align_corners


def margin_stage(
    scores: Tensor,
    labels: Tensor,
    weight: Tensor | None,
    rho_0k: Tensor,
    rho_k0: Tensor,
    *,
    pos_weight: float,
    neg_weight: float,
    bits: float,
    ignore_index: int,
    pixel_loss: bool = False,
) -> TritonResult:
    """Algorithm 2 on up-sampled scores.

    Args:
        scores: (N, K, h, w).
        labels: (N, S h, S w), integers; what is no class is left out.
        weight: Weight of each pixel, (N, S h, S w).
        rho_0k: Offsets of the background terms in bits, (K,), float32.
        rho_k0: Offsets of the foreground terms in bits, (K,), float32.
        pos_weight: Weight of the foreground term.
        neg_weight: Weight of the background terms.
        bits: Base-2 logarithm of the base in which scores are exponents.
        ignore_index: Label of the pixels that are left out.
        pixel_loss: Whether to return the loss of each pixel too.
    """
    from .triton_margin import margin_kernel

    stage = _Stage.of(scores, labels, weight, ignore_index, pixel_loss)
    constants = (float(pos_weight), float(neg_weight), float(bits))
    offsets = (rho_0k.contiguous(), rho_k0.contiguous())
    return stage.run(margin_kernel, offsets, constants)._replace(ce=None)


def jaccard_stage(
    scores: Tensor,
    labels: Tensor,
    weight: Tensor | None,
    *,
    ce_weight: float | Tensor,
    levels: int,
    step: int,
    ignore_index: int,
    reduce: Callable[[Tensor], Any] | None = None,
    pixel_loss: bool = False,
) -> TritonResult:
    """The Jaccard objective on up-sampled scores.

    Args:
        scores: (N, K, h, w).
        labels: (N, S h, S w), integers; what is no class is left out.
        weight: Weight of each pixel, (N, S h, S w).
        ce_weight: Weight of the cross-entropy, a number or a 0-dim tensor on
            the device of the scores.
        levels: Levels of the error.
        step: The histograms count every step-th row and column.
        ignore_index: Label of the pixels that are left out.
        reduce: Adds up the histograms (2, K, L) of all ranks, in place.
        pixel_loss: Whether to return the loss of each pixel too.
    """
    import triton

    from . import triton_jaccard

    stage = _Stage.of(scores, labels, weight, ignore_index, pixel_loss)
    N, K, h, w = stage.scores.shape
    L, bins = levels, triton.next_power_of_2(levels)
    rows, columns = (-(-size // step) for size in labels.shape[1:])
    counts = torch.zeros(2, K, L, dtype=torch.int64, device=scores.device)
    launch(
        triton_jaccard.count_errors,
        (-(-rows * columns // triton_jaccard.THREADS.value), N),
        *(stage.scores, stage.labels, counts),
        *(h, w, rows, columns, step, K, ignore_index),
        S=stage.scale,
        L=L,
        BINS=bins,
    )
    if reduce is not None:
        reduce(counts)
    tables = torch.empty(2, K, L, 2, device=scores.device)
    launch(
        triton_jaccard.make_tables,
        (K,),
        *(counts, tables, K),
        L=L,
        BINS=bins,
    )
    is_tensor = isinstance(ce_weight, Tensor)
    return stage.run(
        triton_jaccard.jaccard_kernel,
        (
            tables.view(torch.int64),
            ce_weight if is_tensor else float(ce_weight),
        ),
        L=L,
        LOAD_CE_WEIGHT=is_tensor,
    )


def cross_entropy_stage(
    scores: Tensor,
    labels: Tensor,
    weight: Tensor | None,
    *,
    gamma: float,
    ignore_index: int,
    pixel_loss: bool = False,
) -> TritonResult:
    """Cross-entropy, or focal loss with a gamma above 0.

    Args:
        scores: (N, K, h, w).
        labels: (N, S h, S w), integers; what is no class is left out.
        weight: Weight of each pixel, (N, S h, S w).
        gamma: Exponent of the error in ``(1 - p_y)^gamma log(1 / p_y)``.
        ignore_index: Label of the pixels that are left out.
        pixel_loss: Whether to return the loss of each pixel too.
    """
    from .triton_softmax import cross_entropy_kernel

    stage = _Stage.of(scores, labels, weight, ignore_index, pixel_loss)
    result = stage.run(
        cross_entropy_kernel, (), (float(gamma),), FOCAL=gamma != 0
    )
    return result._replace(ce=None)


def launch(
    kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any
) -> None:
    """Start a kernel on the device of its first argument."""
    with torch.cuda.device_of(arguments[0]):
        kernel[grid](
            *arguments, **constants, num_warps=4, enable_fp_fusion=True
        )


class _Stage(NamedTuple):
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
    ) -> '_Stage':
        losses = None
        if pixel_loss:
            losses = torch.empty(
                labels.shape, dtype=torch.float32, device=labels.device
            )
        return _Stage(
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
        """Run the kernel of a loss, and add up what its programs store."""
        from . import triton_cells as cells

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
        sums = new(4, N * programs, dtype=torch.float32)
        # The stride of a column is 1; a kernel that knew would load
        # labels in another order than it needs them.
        launch(
            kernel,
            (programs, N),
            *(scores, self.labels, self.weight, *tensors),
            *(planes, sums, self.pixel_loss, *numbers),
            *(h, w, K, 1, self.ignore_index),
            S=S,
            **constants,
        )
        losses = new(2, dtype=torch.float32)
        pixels = new(2, dtype=torch.int64)
        launch(
            cells.finish,
            (1,),
            *(sums, losses, pixels, N * programs),
            BLOCK=PROGRAMS_AT_ONCE,
        )
        return TritonResult(
            losses[0],
            losses[1],
            pixels[0],
            pixels[1],
            Planes(planes, scores.shape, scores.dtype, S),
            self.pixel_loss,
        )
