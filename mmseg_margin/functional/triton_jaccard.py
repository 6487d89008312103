r"""The Jaccard objective as three Triton kernels.

With p the softmax of the scores, the error ``e_k`` of a pixel for class k is
``p_k``, for its label ``1 - p_y``. The loss of a pixel is

    l = sum_k w_k e_k + ce_weight log(1 / p_y)

with weights ``w_k`` that depend on the error, as :mod:`.jaccard` derives, but
are held constant. With ``M = sum_{k != y} w_k p_k`` its gradient is

    dl/ds_k = p_k (w_k - M + p_y w_y + ce_weight)          for k other than y,
    dl/ds_y = -p_y (w_y e_y + M) - ce_weight e_y.

:func:`count_errors` counts the errors of some pixels at L levels,
:func:`make_tables` turns the histograms into weights, and
:func:`jaccard_kernel` loops four times over the classes: top score, sum of
the exponentials, M, gradient. The counts are integers, so that atomic
additions give the same result in any order.

With n counted pixels, ``n_k`` of them of class k, ``m_k(e)`` of these and
``b_k(e)`` of the other pixels with an error above e, the weights are

    own   w_k = n / (shown (n_k + b_k)),
    other w_k = n (n_k - m_k) / (shown (n_k + b_k)^2),

where ``shown`` is the number of classes with ``n_k > 0``. A table holds a
value and a slope for each level, which a thread loads as one 64-bit integer.
"""

import triton
import triton.language as tl

from .triton_cells import (
    THREADS,
    border,
    corners,
    load_labels,
    locate,
    places_in_planes,
    store_gradient,
    store_sums,
)
from .triton_softmax import (
    LN_2,
    LOG2_E,
    error_at_label,
    power,
    sum_of_powers,
    top_score,
)

# The whole part of 2^23 + x is in the low bits of the float.
MAGIC = tl.constexpr(8388608.0)
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

    One pixel a thread, from every step-th row and column. BINS is L rounded
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
    label, known = load_labels(
        labels, at[None, :], exists[None, :], K, ignore_index
    )

    scores += n * K * h * w
    top, label_score = top_score(scores, nodes, down, right, label, h, w, K, S)
    top = top * LOG2_E
    total, _ = sum_of_powers(
        scores, nodes, down, right, label, top, h, w, K, S
    )
    scale = 1.0 / total
    # Pixels whose loss is not finite have no error to be counted.
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


@triton.jit(do_not_specialize=['h', 'w', 'K', 'x_stride', 'ignore_index'])
def jaccard_kernel(
    scores,
    labels,
    weight,
    tables,
    ce_weight,
    planes,
    sums,
    pixel_loss,
    h,
    w,
    K,
    x_stride,
    ignore_index,
    S: tl.constexpr,
    L: tl.constexpr,
    LOAD_CE_WEIGHT: tl.constexpr,
):
    n = tl.program_id(1).to(tl.int64)
    nodes, down, right, y, x, exists = locate(h, w, S)
    at = n * (h * S) * (w * S) + (y * (w * S) + x * x_stride)
    label, counts = load_labels(labels, at, exists, K, ignore_index)
    if LOAD_CE_WEIGHT:
        ce_weight = tl.load(ce_weight).to(tl.float32)
    scores += n * K * h * w

    top, label_score = top_score(scores, nodes, down, right, label, h, w, K, S)
    hits = label_score >= top
    top = top * LOG2_E
    total, others = sum_of_powers(
        scores, nodes, down, right, label, top, h, w, K, S
    )
    scale = 1.0 / total

    M = tl.full(label.shape, 0.0, tl.float32)
    s_k = scores
    table = tables + K * L
    for k in tl.range(0, K):
        p = scale * power(s_k, nodes, down, right, top, S)
        p = tl.where(label == k, 0.0, p)
        M += p * look_up(table, p, L)
        s_k += h * w
        table += L
    label_bits = label_score * LOG2_E - top
    p = scale * tl.exp2(label_bits)
    error = error_at_label(p, scale * others)
    own = look_up(tables + tl.maximum(label, 0) * L, error, L)
    cost = own * error + M
    ce = LN_2 * (tl.log2(total) - label_bits)
    pixel_weight = counts.to(tl.float32)
    if weight is not None:
        pixel_weight = tl.load(weight + at, mask=counts, other=0.0)
        pixel_weight = pixel_weight.to(tl.float32)
        ce *= pixel_weight
    loss = pixel_weight * cost + ce_weight * ce
    if pixel_loss is not None:
        value = tl.where(counts, loss, 0.0)
        tl.store(pixel_loss + at, value, mask=exists)
    store_sums(sums, loss, ce, hits, counts)

    of_label = -pixel_weight * (p * cost + ce_weight * error)
    shift = ce_weight - M + p * own
    places = places_in_planes(h, w, K, S)
    out = planes + n * K * places[3]
    s_k = scores
    table = tables + K * L
    for k in tl.range(0, K):
        p = scale * power(s_k, nodes, down, right, top, S)
        g = pixel_weight * p * (look_up(table, p, L) + shift)
        g = tl.where(label == k, of_label, g)
        store_gradient(out, places, g, down, right, S)
        s_k += h * w
        table += L
        out += places[3]
