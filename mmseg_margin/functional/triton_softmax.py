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

from typing import Any, NamedTuple

import triton
import triton.language as tl

from . import triton_cells as cells

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


class CellSoftmax(NamedTuple):
    """The softmax of the pixels."""

    top: Any  # the top score in bits
    scale: Any  # 1 / the sum of the powers of the classes
    p: Any  # probability of the label
    error: Any  # 1 - p
    log_loss: Any  # log(1 / p)
    hits: Any  # whether the label is the argmax of the scores


@triton.jit
def power(scores, pixels, top, S: tl.constexpr):
    """``exp(s - top)`` of a class; the top score is given in bits."""
    return tl.exp2(cells.upsample(scores, pixels, S) * LOG2_E - top)


@triton.jit
def softmax(scores, pixels, K, S: tl.constexpr):
    label = pixels.label
    top = tl.full(label.shape, float('-inf'), tl.float32)
    label_score = tl.zeros(label.shape, tl.float32)
    argmax = tl.full(label.shape, -1, tl.int32)
    s_k = scores
    for k in tl.range(0, K):
        s = cells.upsample(s_k, pixels, S)
        argmax = tl.where(s > top, k, argmax)
        top = tl.maximum(top, s)
        label_score = tl.where(label == k, s, label_score)
        s_k += pixels.stride
    hits = argmax == label
    top = top * LOG2_E
    total = tl.zeros(label.shape, tl.float32)
    others = tl.zeros(label.shape, tl.float32)
    for k in tl.range(0, K):
        u = power(scores, pixels, top, S)
        total += u
        others += tl.where(label == k, 0.0, u)
        scores += pixels.stride
    scale = 1.0 / total
    others *= scale
    # Above 0 only for an ignored pixel, where 0 * inf would be NaN.
    label_bits = tl.minimum(label_score * LOG2_E - top, 0.0)
    p = scale * tl.exp2(label_bits)
    # 1 - p or the sum of the others, whichever is more exact.
    error = tl.where(others > 0.5, 1.0 - p, others)
    # The logarithm is inexact where p is close to 1.
    series = 1.0 + error * (0.5 + error * (1.0 / 3 + error * 0.25))
    log_loss = LN_2 * (tl.log2(total) - label_bits)
    log_loss = tl.where(error < 0.015625, error * series, log_loss)
    return CellSoftmax(top, scale, p, error, log_loss, hits)


@triton.jit(do_not_specialize=cells.SIZES)
def cross_entropy_kernel(
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
    gamma,
    S: tl.constexpr,
    FOCAL: tl.constexpr,
):
    pixels = cells.load_pixels(labels, sums, h, w, K, x_stride, ignored, S)
    scores += pixels.n * K * h * w

    top, scale, p, error, loss, hits = softmax(scores, pixels, K, S)
    slope = cells.load_weight(weight, pixels)
    if FOCAL:
        # Not 0, because 0 / 0 is NaN.
        q = tl.maximum(error, 1e-38, propagate_nan=tl.PropagateNan.ALL)
        slope *= tl.exp2(gamma * tl.log2(q))
        loss_slope = slope * (1.0 + gamma * p * loss / q)
        loss *= slope
        slope = loss_slope
    else:
        loss *= slope
    cells.store_loss(sums, pixel_loss, loss, loss, hits, pixels)

    of_label = -slope * error
    scale *= slope
    for k in tl.range(0, K):
        g = scale * power(scores, pixels, top, S)
        g = tl.where(pixels.label == k, of_label, g)
        cells.store_gradient(planes, k, g, pixels, h, w, K, S)
        scores += h * w
