r"""The Jaccard objective as four Triton kernels.

With p the softmax of the scores, the error ``e_k`` of a pixel for class k is
``p_k``, for its label ``1 - p_y``. The loss of a pixel is

    l = sum_k w_k e_k + ce_weight log(1 / p_y)

with weights ``w_k`` that depend on the level of the error, see
:mod:`.jaccard`, but are held constant. With ``M = sum_{k != y} w_k p_k``
the gradient is

    dl/ds_k = p_k (w_k - M + p_y w_y + ce_weight)          for k other than y,
    dl/ds_y = -p_y (w_y e_y + M) - ce_weight e_y.

:func:`count_grid` counts the labels on a grid of every step-th row and column.
:func:`count_errors` counts the errors on the grid, and at every pixel of the
classes that have few pixels there; the counts are integers, so that atomic
additions give the same result in any order. :func:`make_tables` turns them
into weights. :func:`jaccard_kernel` loops four times over the classes: top
score, sum of the exponentials, M, gradient.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import triton_cells as cells
from . import triton_launch
from .backend import StageResult
from .jaccard import (
    ERROR_UNIT,
    FEW,
    FIRST_LEVEL,
    LEVEL_SHIFT,
    LEVELS,
)
from .triton_launch import Stage
from .triton_softmax import LN_2, power, softmax

# The numbers that both have, as constants of kernels.
L = tl.constexpr(LEVELS)
SHIFT = tl.constexpr(LEVEL_SHIFT)
FIRST = tl.constexpr(FIRST_LEVEL)
UNIT = tl.constexpr(ERROR_UNIT)
FEW_PIXELS = tl.constexpr(FEW)
# Columns of the counts: the levels, the sum of the errors, the pixels.
ERRORS = tl.constexpr(LEVELS)
PIXELS = tl.constexpr(LEVELS + 1)
COLUMNS = tl.constexpr(LEVELS + 2)
# Programs that count the grid of an image, and labels they count at once.
PARTS = tl.constexpr(16)
LABELS_AT_ONCE = tl.constexpr(1024)


@triton.jit(do_not_specialize=cells.SIZES)
def count_grid(
    labels,
    grid,
    counts,
    h,
    w,
    rows,
    columns,
    step,
    K,
    ignored,
    S: tl.constexpr,
    BINS: tl.constexpr,
):
    """Labels on the grid by class, in PARTS of an image, (N, PARTS, BINS).

    BINS is K rounded up to a power of two. It also clears the counts.
    """
    part, n = tl.program_id(0), tl.program_id(1).to(tl.int64)
    size = tl.cdiv(rows * columns, PARTS)
    end = tl.minimum((part + 1) * size, rows * columns)
    found = tl.zeros((BINS,), tl.int32)
    for first in tl.range(part * size, end, LABELS_AT_ONCE):
        i = first + tl.arange(0, LABELS_AT_ONCE)
        at = (n * h * S + i // columns * step) * (w * S) + i % columns * step
        label, known, _ = cells.load_labels(labels, at, i < end, K, ignored)
        found += tl.histogram(label, BINS, mask=known)
    program = n * PARTS + part
    tl.store(grid + program * BINS + tl.arange(0, BINS), found)

    total = 2 * K * COLUMNS
    size = tl.cdiv(total, tl.num_programs(0) * tl.num_programs(1))
    end = tl.minimum((program + 1) * size, total)
    for first in tl.range(program * size, end, LABELS_AT_ONCE):
        at = first + tl.arange(0, LABELS_AT_ONCE)
        zero = tl.zeros((LABELS_AT_ONCE,), tl.int64)
        tl.store(counts + at, zero, mask=at < end)


@triton.jit
def level_of(odds):
    """The level of an error from its odds ``e / (1 - e)``."""
    level = (odds.to(tl.int32, bitcast=True) >> SHIFT) - FIRST
    # Clamped, so that NaN cannot index out of range.
    return tl.minimum(tl.maximum(level, 0), L - 1)


@triton.jit
def count_pixels(
    scores,
    counts,
    n,
    y,
    x,
    label,
    counted,
    weight,
    h,
    w,
    K,
    S: tl.constexpr,
):
    """Count the errors of pixels (y, x), each as often as the weight says."""
    row = (y - S // 2 + S) // S - 1
    column = (x - S // 2 + S) // S - 1
    down = cells.fraction(row, y - S // 2 - row * S, h, S)
    right = cells.fraction(column, x - S // 2 - column * S, w, S)[None, :]
    nodes = cells.corners(row, column, h, w)
    label = label[None, :]
    pixels = cells.CellPixels(
        nodes, down, right, None, None, label, None, n, h * w
    )
    scores += n * K * h * w
    top, scale, p_y, error, loss, _ = softmax(scores, pixels, K, S)
    # A pixel whose loss is not finite has no level of error.
    counted = counted[None, :] & (tl.abs(loss) < float('inf'))
    own = counts + tl.maximum(label, 0) * COLUMNS
    at = own + level_of(error / p_y)
    tl.atomic_add(at, weight, mask=counted, sem='relaxed')
    units = (error / UNIT).to(tl.int64) * weight
    tl.atomic_add(own + ERRORS, units, mask=counted, sem='relaxed')
    counts += K * COLUMNS
    for k in tl.range(0, K):
        p = scale * power(scores, pixels, top, S)
        is_other = counted & (label != k)
        level = tl.reshape(level_of(p / (1.0 - p)), y.shape)
        found = tl.histogram(level, L, tl.reshape(is_other, y.shape))
        tl.atomic_add(
            counts + tl.arange(0, L),
            found.to(tl.int64) * weight,
            mask=found > 0,
            sem='relaxed',
        )
        other = tl.where(is_other, (p / UNIT).to(tl.int64), 0)
        other = tl.sum(tl.sum(other, 0), 0) * weight
        tl.atomic_add(counts + ERRORS, other, sem='relaxed')
        scores += h * w
        counts += COLUMNS


@triton.jit(do_not_specialize=cells.SIZES)
def count_errors(
    scores,
    labels,
    grid,
    counts,
    h,
    w,
    rows,
    columns,
    step,
    K,
    ignored,
    S: tl.constexpr,
    BINS: tl.constexpr,
):
    """Add to the counts (2, K, COLUMNS) of own and of others' errors.

    A thread counts its pixel of the grid and, of classes that have few pixels
    there, the pixels up to its neighbours on the grid.
    """
    n = tl.program_id(1).to(tl.int64)
    bins = tl.arange(0, BINS)
    size = tl.zeros((BINS,), tl.int32)
    for part in tl.range(0, PARTS):
        size += tl.load(grid + (n * PARTS + part) * BINS + bins)
    few = ((size < FEW_PIXELS) & (step > 1)).to(tl.int32)

    thread = tl.program_id(0) * cells.THREADS + tl.arange(0, cells.THREADS)
    y_0 = tl.minimum(thread // columns, rows - 1) * step
    x_0 = thread % columns * step
    found = tl.zeros((BINS,), tl.int32)
    for pixel in tl.range(0, step * step):
        y = y_0 + pixel // step
        x = x_0 + pixel % step
        exists = (thread < rows * columns) & (y < h * S) & (x < w * S)
        at = (n * h * S + y) * (w * S) + x
        label, known, _ = cells.load_labels(labels, at, exists, K, ignored)
        found += tl.histogram(label, BINS, mask=known)
        is_few = tl.gather(few, tl.maximum(label, 0), 0) > 0
        on_grid = known & ~is_few & (pixel == 0)
        if tl.sum(on_grid.to(tl.int32), 0) > 0:
            weight = (step * step).to(tl.int64)
            count_pixels(
                *(scores, counts, n, y, x, label, on_grid, weight, h, w, K, S)
            )
        one_by_one = known & is_few
        if tl.sum(one_by_one.to(tl.int32), 0) > 0:
            weight = (step // step).to(tl.int64)
            count_pixels(
                *(scores, counts, n, y, x, label, one_by_one),
                *(weight, h, w, K, S),
            )
    at = counts + bins * COLUMNS + PIXELS
    tl.atomic_add(at, found.to(tl.int64), mask=found > 0, sem='relaxed')


@triton.jit
def mean_weights(I_0, I_1, U_0, U_1):
    """Means of 1 / U and I / U^2 between two borders of a level."""
    x = (U_1 - U_0) / U_0
    # The series where the closed forms cancel.
    r = 1.0 - x * (0.5 - x * (1.0 / 3 - x * (0.25 - x * (0.2 - x / 6))))
    s = 4.0 / 5 - x * (5.0 / 6 - x * (6.0 / 7 - x * 0.875))
    s = 0.5 - x * (2.0 / 3 - x * (0.75 - x * s))
    closed = LN_2 * tl.log2(1.0 + x) / x
    own = tl.where(x < 0.0625, r, closed)
    slope = tl.where(x < 0.0625, s, (closed - U_0 / U_1) / x)
    return own / U_0, (I_0 / U_1 + (I_1 - I_0) / U_0 * slope) / U_0


@triton.jit(do_not_specialize=cells.SIZES)
def make_tables(
    counts, tables, losses, K, softness, ce_weight, BINS: tl.constexpr
):
    """Weights of one class, tables (2, K, L), and its soft loss.

    The weight of the cross-entropy is stored behind the losses of the classes,
    because jaccard_kernel spills a register if it is one of its arguments.
    """
    bins = tl.arange(0, BINS)
    pixels = tl.load(counts + bins * COLUMNS + PIXELS, mask=bins < K, other=0)
    n = tl.sum(pixels, 0).to(tl.float32)
    shown = tl.sum((pixels > 0).to(tl.int32), 0).to(tl.float32)

    k = tl.program_id(0)
    level = tl.arange(0, L)
    counts += k * COLUMNS
    n_k = tl.load(counts + PIXELS).to(tl.float32)
    own = tl.load(counts + level)
    scale = n_k / tl.maximum(tl.sum(own, 0), 1).to(tl.float32)
    missed = tl.cumsum(own, 0, reverse=True).to(tl.float32) * scale
    own = own.to(tl.float32) * scale
    E_own = tl.load(counts + ERRORS).to(tl.float32) * UNIT * scale
    counts += K * COLUMNS
    other = tl.load(counts + level)
    scale = (n - n_k) / tl.maximum(tl.sum(other, 0), 1).to(tl.float32)
    taken = tl.cumsum(other, 0, reverse=True).to(tl.float32) * scale
    other = other.to(tl.float32) * scale
    E_other = tl.load(counts + ERRORS).to(tl.float32) * UNIT * scale

    hard = 1.0 - softness
    I_1 = tl.maximum(n_k - hard * missed - softness * E_own, 0.0)
    I_0 = tl.minimum(I_1 + hard * own, n_k)
    U_1 = tl.maximum(n_k, 1.0) + hard * taken + softness * E_other
    U_0 = U_1 - hard * other
    own, other = mean_weights(I_0, I_1, U_0, U_1)
    factor = tl.where(n_k > 0, n / shown, 0.0)
    at = tables + k * L + level
    tl.store(at, factor * own)
    tl.store(at + K * L, factor * other)
    loss = (E_own + E_other) / (tl.maximum(n_k, 1.0) + E_other)
    tl.store(losses + k, tl.where(n_k > 0, loss / shown, 0.0))
    tl.store(losses + K, ce_weight)


@triton.jit
def look_up(table, odds):
    """The weight of an error."""
    return tl.load(table + level_of(odds))


@triton.jit(do_not_specialize=cells.SIZES)
def jaccard_kernel(
    scores,
    labels,
    weight,
    planes,
    sums,
    pixel_loss,
    h,
    w,
    K,
    x_stride,
    ignored,
    tables,
    losses,
    S: tl.constexpr,
):
    pixels = cells.load_pixels(labels, sums, h, w, K, x_stride, ignored, S)
    label = pixels.label
    ce_weight = tl.load(losses + K)
    scores += pixels.n * K * h * w

    top, scale, p_y, error, ce, hits = softmax(scores, pixels, K, S)
    M = tl.zeros(label.shape, tl.float32)
    s_k = scores
    table = tables + K * L
    for k in tl.range(0, K):
        p = scale * power(s_k, pixels, top, S)
        p = tl.where(label == k, 0.0, p)
        M += p * look_up(table, p / (1.0 - p))
        s_k += h * w
        table += L
    w_y = look_up(tables + tl.maximum(label, 0) * L, error / p_y)
    cost = w_y * error + M
    pixel_weight = cells.load_weight(weight, pixels)
    ce *= pixel_weight
    loss = pixel_weight * cost + ce_weight * ce
    cells.store_loss(sums, pixel_loss, loss, ce, hits, pixels)

    of_label = -pixel_weight * (p_y * cost + ce_weight * error)
    shift = ce_weight - M + p_y * w_y
    s_k = scores
    table = tables + K * L
    for k in tl.range(0, K):
        p = scale * power(s_k, pixels, top, S)
        g = pixel_weight * p * (look_up(table, p / (1.0 - p)) + shift)
        g = tl.where(label == k, of_label, g)
        cells.store_gradient(planes, k, g, pixels, h, w, K, S)
        s_k += h * w
        table += L


def jaccard_stage(
    stage: Stage,
    *,
    ce_weight: float,
    step: int,
    reduce: Callable[[Tensor], Any] | None = None,
    softness: float = 0.0,
) -> StageResult:
    """The Jaccard objective on up-sampled scores.

    Args:
        stage: The batch.
        ce_weight: Weight of the cross-entropy.
        step: Distance of the rows and columns of the grid.
        reduce: Sums the counts of errors over the ranks in place.
        softness: See :mod:`.jaccard`.
    """
    scores, labels = stage.scores, stage.labels
    N, K, h, w = scores.shape
    bins = triton.next_power_of_2(K)
    new = functools.partial(torch.empty, device=labels.device)
    grid = new(N, PARTS.value, bins, dtype=torch.int32)
    counts = new(2, K, COLUMNS.value, dtype=torch.int64)
    some = labels[:, ::step, ::step]
    rows, columns = some.shape[1:]
    sizes = (h, w, rows, columns, step, K, stage.ignore_index)
    constants = dict(S=stage.scale, BINS=bins)
    triton_launch.launch(
        count_grid, (PARTS.value, N), some, grid, counts, *sizes, **constants
    )
    triton_launch.launch(
        count_errors,
        (-(-rows * columns // cells.THREADS.value), N),
        *(scores, labels, grid, counts, *sizes),
        **constants,
    )
    if reduce is not None:
        reduce(counts)
    tables, losses = new(2, K, LEVELS), new(K + 1)
    triton_launch.launch(
        make_tables,
        (K,),
        *(counts, tables, losses, K, float(softness), float(ce_weight)),
        BINS=bins,
    )
    result = stage.run(jaccard_kernel, tables, losses)
    return result._replace(jaccard=losses[:K])
