r"""Histograms of the errors, and the Jaccard objective's weights.

The error of a pixel for class k is ``p_k``, for its label ``1 - p_y``. With n
counted pixels, ``n_k`` of them of class k, ``m_k(e)`` of these and ``b_k(e)``
of the other pixels with an error above e, an error e has the weight

    own    n / (shown (n_k + b_k)),
    other  n (n_k - m_k) / (shown (n_k + b_k)^2),

where ``shown`` is the number of classes with ``n_k > 0``. The counts are
integers, so that atomic additions give the same result in any order.
"""

import triton
import triton.language as tl

from .triton_cells import THREADS, border, corners, load_labels
from .triton_softmax import LOG2_E, power, sum_of_powers, top_score

TABLE_CLASSES = tl.constexpr(16)


@triton.jit(
    do_not_specialize=[
        'h',
        'w',
        'rows',
        'columns',
        'step',
        'K',
        'ignore_index',
    ]
)
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
    ignore_index,
    S: tl.constexpr,
    L: tl.constexpr,
    BINS: tl.constexpr,
):
    """Histograms (2, K, L) of own and others' errors, times step squared.

    One pixel per thread, from every step-th row and column. BINS is L rounded
    up to a power of two.
    """
    HALF: tl.constexpr = 0.5 if S % 2 == 0 else 0.0
    n = tl.program_id(1).to(tl.int64)
    thread = tl.program_id(0) * THREADS + tl.arange(0, THREADS)
    exists = thread < rows * columns
    y = tl.minimum(thread // columns, rows - 1) * step
    x = thread % columns * step
    row = (y - S // 2 + S) // S - 1
    column = (x - S // 2 + S) // S - 1
    down = ((y - S // 2 - row * S).to(tl.float32) + HALF) / S
    right = ((x - S // 2 - column * S).to(tl.float32) + HALF) / S
    down = border(row, down, h)
    right = border(column, right, w)[None, :]
    nodes = corners(row, column, h, w)
    at = n * (h * S) * (w * S) + (y * (w * S) + x)
    label, known, _ = load_labels(
        labels, at[None, :], exists[None, :], K, ignore_index
    )

    scores += n * K * h * w
    top, label_score = top_score(scores, nodes, down, right, label, h, w, K, S)
    top = top * LOG2_E
    total, _ = sum_of_powers(
        scores, nodes, down, right, label, top, h, w, K, S
    )
    scale = 1.0 / total
    # A pixel whose loss is not finite has no level of error.
    loss = tl.log2(total) + top - label_score * LOG2_E
    known = tl.max((known & (tl.abs(loss) < float('inf'))).to(tl.int32), 0) > 0
    label = tl.max(label, 0)
    bins = tl.arange(0, 2 * BINS)
    place = tl.where(bins < BINS, bins, K * L + bins - BINS)
    for k in tl.range(0, K):
        p = tl.sum(scale * power(scores, nodes, down, right, top, S), 0)
        is_label = label == k
        error = tl.where(is_label, 1.0 - p, p)
        level = tl.minimum(tl.maximum((error * L).to(tl.int32), 0), L - 1)
        level = tl.where(is_label, level, level + BINS)
        count = tl.histogram(level, 2 * BINS, mask=known)
        tl.atomic_add(
            counts + place,
            count.to(tl.int64) * step * step,
            mask=count > 0,
            sem='relaxed',
        )
        scores += h * w
        counts += L


@triton.jit(do_not_specialize=['K'])
def make_tables(counts, tables, K, L: tl.constexpr, BINS: tl.constexpr):
    """Value and slope of one class's weights, tables (2, K, L, 2)."""
    level = tl.arange(0, BINS)
    is_level = level < L
    shown = tl.zeros((TABLE_CLASSES,), tl.int32)
    for first in tl.range(0, K, TABLE_CLASSES):
        k = first + tl.arange(0, TABLE_CLASSES)
        mask = (k < K)[:, None] & is_level[None, :]
        own = tl.load(
            counts + k[:, None] * L + level[None, :], mask=mask, other=0
        )
        shown += (tl.sum(own, 1) > 0).to(tl.int32)
    shown = tl.sum(shown, 0).to(tl.float32)

    at = tl.program_id(0) * L + level
    own = tl.load(counts + at, mask=is_level, other=0)
    other = tl.load(counts + K * L + at, mask=is_level, other=0)
    n_k = tl.sum(own, 0)
    n = (n_k + tl.sum(other, 0)).to(tl.float32)
    missed = tl.cumsum(own, 0, reverse=True)
    union = n_k + tl.cumsum(other, 0, reverse=True)
    own_0, other_0 = weights(n, n_k, missed, union, shown)
    own_1, other_1 = weights(n, n_k, missed - own, union - other, shown)
    at = 2 * at
    tl.store(tables + at, own_0, mask=is_level)
    tl.store(tables + at + 1, own_1 - own_0, mask=is_level)
    at += 2 * K * L
    tl.store(tables + at, other_0, mask=is_level)
    tl.store(tables + at + 1, other_1 - other_0, mask=is_level)


@triton.jit
def weights(n, n_k, missed, union, shown):
    """Of own and of others' errors; 0 for a class that is not shown."""
    union = tl.maximum(union, 1).to(tl.float32)
    own = tl.where(n_k > 0, n / (shown * union), 0.0)
    return own, own * (n_k - missed).to(tl.float32) / union
