"""The loss stage of a head on a GPU, in three or six kernel launches.

Up-sampling, loss, gradient and hits, without full-size scores and without
waiting for the device. Nothing here takes part in autograd: the gradient is
computed along with the loss, and :meth:`.Planes.combine` finishes it in the
backward pass. The kernels are in :mod:`.triton_margin`,
:mod:`.triton_jaccard` and :mod:`.triton_softmax`; they are imported
where they are used, because triton is an optional dependency.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import triton_launch
from .triton_launch import Stage, TritonResult

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


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
    ignore_index: int,
    pixel_loss: bool = False,
    *,
    rho_0k: Tensor,
    rho_k0: Tensor,
    pos_weight: float,
    neg_weight: float,
    bits: float,
) -> TritonResult:
    """Algorithm 2 on up-sampled scores.

    Args:
        scores: (N, K, h, w).
        labels: (N, S h, S w), integers; one that is no class gives NaN.
        weight: Weight of each pixel, (N, S h, S w).
        ignore_index: Label of the pixels that are left out.
        pixel_loss: Whether to return the loss of each pixel too.
        rho_0k: Offsets of the background terms in bits, (K,), float32.
        rho_k0: Offsets of the foreground terms in bits, (K,), float32.
        pos_weight: Weight of the foreground term.
        neg_weight: Weight of the background terms.
        bits: Base-2 logarithm of the loss's base.
    """
    from .triton_margin import margin_kernel

    stage = Stage.of(scores, labels, weight, ignore_index, pixel_loss)
    constants = (float(pos_weight), float(neg_weight), float(bits))
    offsets = (rho_0k.float().contiguous(), rho_k0.float().contiguous())
    return stage.run(margin_kernel, offsets, constants)._replace(ce=None)


def jaccard_stage(
    scores: Tensor,
    labels: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    pixel_loss: bool = False,
    *,
    ce_weight: float | Tensor,
    levels: int,
    step: int,
    reduce: Callable[[Tensor], Any] | None = None,
) -> TritonResult:
    """The Jaccard objective on up-sampled scores.

    Args:
        scores: (N, K, h, w).
        labels: (N, S h, S w), integers; one that is no class gives NaN.
        weight: Weight of each pixel, (N, S h, S w).
        ignore_index: Label of the pixels that are left out.
        pixel_loss: Whether to return the loss of each pixel too.
        ce_weight: Weight of the cross-entropy, a number or a 0-dim tensor on
            the device of the scores.
        levels: Number of error levels in the histograms.
        step: The histograms count every step-th row and column.
        reduce: Sums the histograms (2, K, L) over the ranks in place.
    """
    import triton

    from . import triton_errors
    from .triton_jaccard import jaccard_kernel

    stage = Stage.of(scores, labels, weight, ignore_index, pixel_loss)
    N, K, h, w = stage.scores.shape
    L, bins = levels, triton.next_power_of_2(levels)
    rows, columns = (-(-size // step) for size in labels.shape[1:])
    counts = torch.zeros(2, K, L, dtype=torch.int64, device=scores.device)
    triton_launch.launch(
        triton_errors.count_errors,
        (-(-rows * columns // triton_errors.THREADS.value), N),
        *(stage.scores, stage.labels, counts),
        *(h, w, rows, columns, step, K, ignore_index),
        S=stage.scale,
        L=L,
        BINS=bins,
    )
    if reduce is not None:
        reduce(counts)
    tables = counts.new_empty(2, K, L, 2, dtype=torch.float32)
    triton_launch.launch(
        triton_errors.make_tables,
        (K,),
        *(counts, tables, K),
        L=L,
        BINS=bins,
    )
    is_tensor = isinstance(ce_weight, Tensor)
    return stage.run(
        jaccard_kernel,
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
    ignore_index: int,
    pixel_loss: bool = False,
    *,
    gamma: float,
) -> TritonResult:
    """Cross-entropy, or focal loss with a gamma above 0.

    Args:
        scores: (N, K, h, w).
        labels: (N, S h, S w), integers; one that is no class gives NaN.
        weight: Weight of each pixel, (N, S h, S w).
        ignore_index: Label of the pixels that are left out.
        pixel_loss: Whether to return the loss of each pixel too.
        gamma: Exponent of the error in ``(1 - p_y)^gamma log(1 / p_y)``.
    """
    from .triton_softmax import cross_entropy_kernel

    stage = Stage.of(scores, labels, weight, ignore_index, pixel_loss)
    result = stage.run(
        cross_entropy_kernel, (), (float(gamma),), FOCAL=gamma != 0
    )
    return result._replace(ce=None)
