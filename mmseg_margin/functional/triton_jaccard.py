r"""The Jaccard objective as three Triton kernels.

With p the softmax of the scores, the error ``e_k`` of a pixel for class k is
``p_k``, for its label ``1 - p_y``. The loss of a pixel is

    l = sum_k w_k e_k + ce_weight log(1 / p_y)

with weights ``w_k`` that depend on the error but are held constant. With n
counted pixels, ``n_k`` of them of class k, ``m_k(e)`` of these and ``b_k(e)``
of the other pixels with an error above e, an error e has the weight

    own    n / (shown (n_k + b_k)),
    other  n (n_k - m_k) / (shown (n_k + b_k)^2),

where ``shown`` is the number of classes with ``n_k > 0``. The softness h moves
``m_k(e)`` and ``b_k(e)`` to their means over all levels. With ``M =
sum_{k != y} w_k p_k`` the gradient is

    dl/ds_k = p_k (w_k - M + p_y w_y + ce_weight)          for k other than y,
    dl/ds_y = -p_y (w_y e_y + M) - ce_weight e_y.

:func:`count_errors` counts the errors of some pixels at L levels; the counts
are integers, so that atomic additions give the same result in any order.
:func:`make_tables` turns the histograms into weights: a table holds a value
and a slope for each level, which a thread loads as one 64-bit integer.
:func:`jaccard_kernel` loops four times over the classes: top score, sum of
the exponentials, M, gradient.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import triton_cells as cells
from . import triton_launch
from .triton_launch import Stage, TritonResult
from .triton_softmax import power, softmax

TABLE_CLASSES = tl.constexpr(16)
# The low bits of the float 2^23 + x are the whole part of x.
MAGIC = tl.constexpr(8388608.0)


@triton.jit(do_not_specialize=cells.SIZES)
def count_errors(
    scores,
    labels,
    counts,
    h,
    w,
    rows,
    columns,
    step,
    K,
    ignored,
    S: tl.constexpr,
    L: tl.constexpr,
    BINS: tl.constexpr,
):
    """Histograms (2, K, L) of own and others' errors, times step squared.

    One pixel per thread, from every step-th row and column. BINS is L rounded
    up to a power of two.
    """
    n = tl.program_id(1).to(tl.int64)
    thread = tl.program_id(0) * cells.THREADS + tl.arange(0, cells.THREADS)
    y = tl.minimum(thread // columns, rows - 1) * step
    x = thread % columns * step
    row = (y - S // 2 + S) // S - 1
    column = (x - S // 2 + S) // S - 1
    exists = (thread < rows * columns)[None, :]
    at = (n * (h * S) * (w * S) + (y * (w * S) + x))[None, :]
    label, known, _ = cells.load_labels(labels, at, exists, K, ignored)
    nodes = cells.corners(row, column, h, w)
    down = cells.fraction(row, y - S // 2 - row * S, h, S)
    right = cells.fraction(column, x - S // 2 - column * S, w, S)[None, :]
    pixels = cells.Pixels(
        nodes, down, right, at, exists, label, known, n, h * w
    )

    scores += n * K * h * w
    top, scale, _, label_error, loss, _ = softmax(scores, pixels, K, S)
    # A pixel whose loss is not finite has no level of error.
    known = tl.reshape(known & (tl.abs(loss) < float('inf')), (cells.THREADS,))
    bins = tl.arange(0, 2 * BINS)
    place = tl.where(bins < BINS, bins, K * L + bins - BINS)
    for k in tl.range(0, K):
        p = scale * power(scores, pixels, top, S)
        error = tl.where(label == k, label_error, p)
        level = tl.minimum(tl.maximum((error * L).to(tl.int32), 0), L - 1)
        level = tl.where(label == k, level, level + BINS)
        count = tl.histogram(
            tl.reshape(level, (cells.THREADS,)), 2 * BINS, mask=known
        )
        tl.atomic_add(
            counts + place,
            count.to(tl.int64) * step * step,
            mask=count > 0,
            sem='relaxed',
        )
        scores += h * w
        counts += L


@triton.jit
def soften(above, at_level, softness, L: tl.constexpr):
    """Errors above both borders of each level, moved towards their mean."""
    mean = tl.sum(2 * above - at_level, 0).to(tl.float32) / (2 * L)
    lower, upper = above.to(tl.float32), (above - at_level).to(tl.float32)
    return lower + softness * (mean - lower), upper + softness * (mean - upper)


@triton.jit
def weights(n, n_k, missed, taken, shown):
    """Of own and of others' errors; 0 for a class that is not shown."""
    union = tl.maximum(n_k + taken, 1.0)
    own = tl.where(n_k > 0, n / (shown * union), 0.0)
    return own, own * (n_k - missed) / union


@triton.jit(do_not_specialize=cells.SIZES)
def make_tables(
    counts, tables, K, softness, L: tl.constexpr, BINS: tl.constexpr
):
    """Value and slope of one class's weights, tables (2, K, L, 2)."""
    level = tl.arange(0, BINS)
    is_level = level < L
    shown = tl.zeros((TABLE_CLASSES,), tl.int32)
    for first in tl.range(0, K, TABLE_CLASSES):
        k = first + tl.arange(0, TABLE_CLASSES)[:, None]
        mask = (k < K) & is_level[None, :]
        own = tl.load(counts + k * L + level[None, :], mask=mask, other=0)
        shown += (tl.sum(own, 1) > 0).to(tl.int32)
    shown = tl.sum(shown, 0).to(tl.float32)

    at = tl.program_id(0) * L + level
    own = tl.load(counts + at, mask=is_level, other=0)
    other = tl.load(counts + K * L + at, mask=is_level, other=0)
    n_k = tl.sum(own, 0).to(tl.float32)
    n = tl.sum(own + other, 0).to(tl.float32)
    missed = tl.cumsum(own, 0, reverse=True)
    taken = tl.cumsum(other, 0, reverse=True)
    missed_0, missed_1 = soften(missed, own, softness, L)
    taken_0, taken_1 = soften(taken, other, softness, L)
    own_0, other_0 = weights(n, n_k, missed_0, taken_0, shown)
    own_1, other_1 = weights(n, n_k, missed_1, taken_1, shown)
    at = 2 * at
    tl.store(tables + at, own_0, mask=is_level)
    tl.store(tables + at + 1, own_1 - own_0, mask=is_level)
    at += 2 * K * L
    tl.store(tables + at, other_0, mask=is_level)
    tl.store(tables + at + 1, other_1 - other_0, mask=is_level)


@triton.jit
def look_up(table, error, L: tl.constexpr):
    """The weight of an error: a value and, within the level, a slope."""
    place = error * L
    # Clamped, so that NaN cannot index out of range.
    level = tl.minimum(tl.maximum(place - 0.5 + MAGIC, MAGIC), MAGIC + (L - 1))
    pair = tl.load(table + (level.to(tl.int32, bitcast=True) & 0x7FFFFF))
    value = (pair & 0xFFFFFFFF).to(tl.int32).to(tl.float32, bitcast=True)
    slope = (pair >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    return value + slope * (place - (level - MAGIC))


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
    ce_weight,
    S: tl.constexpr,
    L: tl.constexpr,
    LOAD_CE_WEIGHT: tl.constexpr,
):
    pixels = cells.load_pixels(labels, sums, h, w, K, x_stride, ignored, S)
    label = pixels.label
    if LOAD_CE_WEIGHT:
        ce_weight = tl.load(ce_weight).to(tl.float32)
    scores += pixels.n * K * h * w

    top, scale, p_y, error, ce, hits = softmax(scores, pixels, K, S)
    M = tl.zeros(label.shape, tl.float32)
    s_k = scores
    table = tables + K * L
    for k in tl.range(0, K):
        p = scale * power(s_k, pixels, top, S)
        p = tl.where(label == k, 0.0, p)
        M += p * look_up(table, p, L)
        s_k += h * w
        table += L
    w_y = look_up(tables + tl.maximum(label, 0) * L, error, L)
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
        g = pixel_weight * p * (look_up(table, p, L) + shift)
        g = tl.where(label == k, of_label, g)
        cells.store_gradient(planes, k, g, pixels, h, w, K, S)
        s_k += h * w
        table += L


def jaccard_stage(
    stage: Stage,
    *,
    ce_weight: float | Tensor,
    levels: int,
    step: int,
    reduce: Callable[[Tensor], Any] | None = None,
    softness: float = 0.0,
) -> TritonResult:
    """The Jaccard objective on up-sampled scores.

    Args:
        stage: The batch.
        ce_weight: Weight of the cross-entropy, a number or a 0-dim tensor on
            the device of the scores.
        levels: Number of error levels in the histograms.
        step: The histograms count every step-th row and column.
        reduce: Sums the histograms (2, K, L) over the ranks in place.
        softness: See :mod:`.jaccard_loss`.
    """
    scores, labels = stage.scores, stage.labels
    N, K, h, w = scores.shape
    table_size = dict(L=levels, BINS=triton.next_power_of_2(levels))
    rows, columns = (-(-size // step) for size in labels.shape[1:])
    counts = torch.zeros(2, K, levels, dtype=torch.int64, device=labels.device)
    triton_launch.launch(
        count_errors,
        (-(-rows * columns // cells.THREADS.value), N),
        *(scores, labels, counts),
        *(h, w, rows, columns, step, K, stage.ignore_index),
        S=stage.scale,
        **table_size,
    )
    if reduce is not None:
        reduce(counts)
    tables = scores.new_empty(2, K, levels, 2, dtype=torch.float32)
    triton_launch.launch(
        make_tables, (K,), counts, tables, K, float(softness), **table_size
    )
    is_tensor = isinstance(ce_weight, Tensor)
    return stage.run(
        jaccard_kernel,
        tables.view(torch.int64),
        ce_weight if is_tensor else float(ce_weight),
        L=levels,
        LOAD_CE_WEIGHT=is_tensor,
    )
