r"""The Jaccard objective as a Triton kernel.

With p the softmax of the scores, the error ``e_k`` of a pixel for class k is
``p_k``, for its label ``1 - p_y``. The loss of a pixel is

    l = sum_k w_k e_k + ce_weight log(1 / p_y)

with weights ``w_k`` that depend on the error, see :mod:`.triton_errors`, but
are held constant. With ``M = sum_{k != y} w_k p_k`` its gradient is

    dl/ds_k = p_k (w_k - M + p_y w_y + ce_weight)          for k other than y,
    dl/ds_y = -p_y (w_y e_y + M) - ce_weight e_y.

Three kernels: :func:`.count_errors` counts the errors of some pixels at L
levels, :func:`.make_tables` turns the histograms into weights, and
:func:`jaccard_kernel` loops four times over the classes: top score, sum of
the exponentials, M, gradient. A table holds a value and a slope for each
level, which a thread loads as one 64-bit integer.
"""

import triton
import triton.language as tl

from .triton_cells import (
    load_pixels,
    load_weight,
    places_in_planes,
    store_gradient,
)
from .triton_softmax import (
    LOG2_E,
    error_at_label,
    log_loss_at_label,
    power,
    sum_of_powers,
    top_score,
)
from .triton_sums import store_loss

# The low bits of the float 2^23 + x are the whole part of x.
MAGIC = tl.constexpr(8388608.0)


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
    invalid,
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
    nodes, down, right, at, exists, label, counts = load_pixels(
        labels, invalid, n, h, w, K, x_stride, ignore_index, S
    )
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
    w_y = look_up(tables + tl.maximum(label, 0) * L, error, L)
    cost = w_y * error + M
    ce = log_loss_at_label(error, total, label_bits)
    pixel_weight = load_weight(weight, at, counts)
    ce *= pixel_weight
    loss = pixel_weight * cost + ce_weight * ce
    store_loss(sums, pixel_loss, loss, ce, hits, counts, at, exists)

    of_label = -pixel_weight * (p * cost + ce_weight * error)
    shift = ce_weight - M + p * w_y
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
