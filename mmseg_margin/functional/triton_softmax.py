r"""Cross-entropy and focal loss as one Triton kernel, and the softmax of both.

With p the softmax of the scores, ``q = 1 - p_y`` the error at the label y and
``c = log(1 / p_y)``, the loss of a pixel is ``q^gamma c``. By

    dp_y/ds_k = p_y ([k = y] - p_k)

its gradient is ``slope (p_k - [k = y])`` with

    slope = q^gamma + gamma q^(gamma - 1) p_y c
          = q^gamma (1 + gamma p_y c / q).

Three loops over the classes: top score, sum of the exponentials, gradient.
Exponentials are powers of two, which is what a GPU computes.
"""

import triton
import triton.language as tl

from .triton_cells import (
    load_pixels,
    load_weight,
    places_in_planes,
    store_gradient,
    upsample,
)
from .triton_sums import store_loss

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def top_score(scores, nodes, down, right, label, h, w, K, S: tl.constexpr):
    """The top score of each pixel and that of its label."""
    top = tl.full(label.shape, float('-inf'), tl.float32)
    label_score = tl.full(label.shape, 0.0, tl.float32)
    for k in tl.range(0, K):
        s = upsample(scores, nodes, down, right, S)
        top = tl.maximum(top, s)
        label_score = tl.where(label == k, s, label_score)
        scores += h * w
    return top, label_score


@triton.jit
def power(scores, nodes, down, right, top, S: tl.constexpr):
    """``exp(s - top)`` of a class; the top score is given in bits."""
    s = upsample(scores, nodes, down, right, S)
    return tl.exp2(s * LOG2_E - top)


@triton.jit
def sum_of_powers(
    scores, nodes, down, right, label, top, h, w, K, S: tl.constexpr
):
    """The denominator of the softmax, and its part that is not the label's."""
    total = tl.full(label.shape, 0.0, tl.float32)
    others = tl.full(label.shape, 0.0, tl.float32)
    for k in tl.range(0, K):
        u = power(scores, nodes, down, right, top, S)
        total += u
        others += tl.where(label == k, 0.0, u)
        scores += h * w
    return total, others


@triton.jit
def error_at_label(p, others):
    """``1 - p`` or the sum of the others, whichever is more exact."""
    return tl.where(others > 0.5, 1.0 - p, others)


@triton.jit
def log_loss_at_label(error, total, label_bits):
    """``log(1 / p_y)``; the logarithm is inexact where p_y is close to 1."""
    series = 1.0 + error * (0.5 + error * (1.0 / 3 + error * 0.25))
    loss = LN_2 * (tl.log2(total) - label_bits)
    return tl.where(error < 0.015625, error * series, loss)


@triton.jit(do_not_specialize=['h', 'w', 'K', 'x_stride', 'ignore_index'])
def cross_entropy_kernel(
    scores,
    labels,
    weight,
    planes,
    sums,
    invalid,
    pixel_loss,
    gamma,
    h,
    w,
    K,
    x_stride,
    ignore_index,
    S: tl.constexpr,
    FOCAL: tl.constexpr,
):
    n = tl.program_id(1).to(tl.int64)
    nodes, down, right, at, exists, label, counts = load_pixels(
        labels, invalid, n, h, w, K, x_stride, ignore_index, S
    )
    scores += n * K * h * w

    top, label_score = top_score(scores, nodes, down, right, label, h, w, K, S)
    hits = label_score >= top
    top = top * LOG2_E
    total, others = sum_of_powers(
        scores, nodes, down, right, label, top, h, w, K, S
    )
    scale = 1.0 / total
    label_bits = label_score * LOG2_E - top
    p = scale * tl.exp2(label_bits)
    error = error_at_label(p, scale * others)
    loss = log_loss_at_label(error, total, label_bits)
    slope = load_weight(weight, at, counts)
    if FOCAL:
        # Not 0, because 0 / 0 is NaN.
        q = tl.maximum(error, 1e-38, propagate_nan=tl.PropagateNan.ALL)
        slope *= tl.exp2(gamma * tl.log2(q))
        loss_slope = slope * (1.0 + gamma * p * loss / q)
        loss *= slope
        slope = loss_slope
    else:
        loss *= slope
    store_loss(sums, pixel_loss, loss, loss, hits, counts, at, exists)

    of_label = -slope * error
    scale *= slope
    places = places_in_planes(h, w, K, S)
    out = planes + n * K * places[3]
    for k in tl.range(0, K):
        g = scale * power(scores, nodes, down, right, top, S)
        g = tl.where(label == k, of_label, g)
        store_gradient(out, places, g, down, right, S)
        scores += h * w
        out += places[3]
