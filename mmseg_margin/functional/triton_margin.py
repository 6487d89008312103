r"""The margin loss of Algorithm 2 as one Triton kernel.

Scores s and offsets rho are in bits: a score is worth ``bits = log2(b)`` for
the base b of the logarithm. With t the class of the top score and r that of
the second, the margins of Eq. 8 are

    lambda_t = s_t - s_r,    lambda_k = s_k - s_t  for the others.

Eq. 16 sums ``log2(1 + 2^x) / bits`` with ``x_y = rho_y0 - bits lambda_y`` for
the label y and ``x_k = rho_0k + bits lambda_k`` for the other classes. With
``sigma(x) = 2^x / (1 + 2^x)`` its derivative with respect to ``lambda_k`` is
``g_k = sigma(x_k)``, for the label ``g_y = -sigma(x_y)``, each times its
weight, and by the chain rule

    dl/ds_k = g_k                   for k other than t and r,
    dl/ds_t = g_t - sum_{k != t} g_k,
    dl/ds_r = g_r - g_t.

Three loops over the classes: the two best scores with their classes; the loss
and the sum of g; the gradient. If several classes share the top score, the
first of them is t and the next is r, which is one of the subgradients.

The sum of the logarithms is the logarithm of a product, so the loop updates
only ``q = prod(1 + 2^x) - 1``: ``q <- q + u + q u`` with ``u = 2^x``. From x
= LIMIT on, ``log2(1 + 2^x) = x`` to the last digit, so the excess is added to
the loss and u stays finite; when q gets too large, its exponent moves to the
loss.
"""

import triton
import triton.language as tl

from . import triton_cells as cells
from .triton_softmax import LOG2_E

LIMIT = tl.constexpr(30.0)
# q beyond 2^60 is scaled down, so that 2^60 2^30 cannot overflow.
LARGE_EXPONENT = tl.constexpr(60.0)
LARGE = tl.constexpr(2.0**60)


@triton.jit
def power_and_sigmoid(x):
    """``2^x`` up to LIMIT, and ``2^x / (1 + 2^x)``.

    rsqrt is one instruction, a division is many.
    """
    u = tl.exp2(tl.minimum(x, LIMIT))
    r = tl.rsqrt(1.0 + u)
    return u, u * r * r


@triton.jit
def log2_of_one_and(u):
    """``log2(1 + u)``, by a series for small u, where 1 + u is inexact."""
    series = u * (1.0 - u * (0.5 - u * (1.0 / 3 - u * 0.25)))
    return tl.where(u < 0.015625, LOG2_E * series, tl.log2(1.0 + u))


@triton.jit
def log_loss(x, u):
    """``log2(1 + 2^x)`` for any x, with u of :func:`power_and_sigmoid`."""
    return log2_of_one_and(u) + tl.maximum(x - LIMIT, 0.0)


@triton.jit(do_not_specialize=cells.SIZES)
def margin_kernel(
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
    rho_0k,
    rho_k0,
    pos_weight,
    neg_weight,
    bits,
    S: tl.constexpr,
):
    """Offsets in bits, (K,), and weights of the label's and other terms."""
    pixels = cells.load_pixels(labels, sums, h, w, K, x_stride, ignored, S)
    label, known = pixels.label, pixels.known
    scores += pixels.n * K * h * w

    top = tl.full(label.shape, float('-inf'), tl.float32)
    second = tl.full(label.shape, float('-inf'), tl.float32)
    label_score = tl.zeros(label.shape, tl.float32)
    top_class = tl.zeros(label.shape, tl.int32)
    second_class = tl.zeros(label.shape, tl.int32)
    s_k = scores
    for k in tl.range(0, K):
        s = cells.upsample(s_k, pixels, S)
        second_class = tl.where(
            s > top, top_class, tl.where(s > second, k, second_class)
        )
        top_class = tl.where(s > top, k, top_class)
        second = tl.maximum(second, tl.minimum(top, s))
        top = tl.maximum(top, s, propagate_nan=tl.PropagateNan.ALL)
        label_score = tl.where(label == k, s, label_score)
        s_k += h * w
    is_top = top_class == label
    lead = top - second
    # NaN where the top score is infinite or any score is NaN.
    poison = top - top

    q = tl.zeros(label.shape, tl.float32)
    loss = tl.zeros(label.shape, tl.float32)
    others = tl.zeros(label.shape, tl.float32)
    s_k = scores
    rho = rho_0k
    for k in tl.range(0, K):
        s = cells.upsample(s_k, pixels, S)
        x_k = tl.load(rho) + bits * (s - top)
        x_k = tl.where((label == k) | (top_class == k), -1e30, x_k)
        u, g = power_and_sigmoid(x_k)
        others += g
        loss += tl.maximum(x_k - LIMIT, 0.0)
        q = q + u + q * u
        large = q > LARGE
        loss = tl.where(large, loss + LARGE_EXPONENT, loss)
        q = tl.where(large, q * (1.0 / LARGE) - 1.0, q)
        s_k += h * w
        rho += 1
    loss += log2_of_one_and(q)

    # The terms of the label and, if it is another class, of the top.
    margin = tl.where(is_top, lead, label_score - top)
    x_y = tl.load(rho_k0 + label, mask=known, other=0.0) - bits * margin
    u, g_y = power_and_sigmoid(x_y)
    loss_y = log_loss(x_y, u)
    x_t = tl.load(rho_0k + top_class, mask=known, other=0.0) + bits * lead
    u, g_t = power_and_sigmoid(x_t)
    loss += tl.where(is_top, 0.0, log_loss(x_t, u))
    loss = (neg_weight * loss + pos_weight * loss_y) / bits + poison
    pixel_weight = cells.load_weight(weight, pixels)
    loss *= pixel_weight
    cells.store_loss(sums, pixel_loss, loss, loss, is_top, pixels)

    neg = neg_weight * pixel_weight
    g_y = -pos_weight * pixel_weight * g_y
    g_t = tl.where(is_top, g_y, neg * g_t)
    of_top = g_t - neg * others - tl.where(is_top, 0.0, g_y) + poison
    of_label = g_y - tl.where(second_class == label, g_t, 0.0) + poison
    of_label = tl.where(is_top, of_top, of_label)
    g_t = tl.where(known, g_t, 0.0)
    of_top = tl.where(known, of_top, 0.0)
    s_k = scores
    rho = rho_0k
    for k in tl.range(0, K):
        s = cells.upsample(s_k, pixels, S)
        _, g = power_and_sigmoid(tl.load(rho) + bits * (s - top))
        g = neg * g
        g = tl.where(second_class == k, g - g_t, g)
        g = tl.where(top_class == k, of_top, g)
        g = tl.where(label == k, of_label, g)
        cells.store_gradient(planes, k, g, pixels, h, w, K, S)
        s_k += h * w
        rho += 1
