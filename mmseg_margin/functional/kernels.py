r"""Every form's loss and its gradient in closed form, pixel by pixel.

Scores are (K, P), labels (1, P), -1 where a pixel is ignored. Everything is
plain torch on whole tensors, to be compiled to a few loops of vector
instructions; the label's row is found by comparison, since an index would
break the loops apart. :mod:`.eager` has the same for lack of a compiler.
Powers and logarithms are of two: a score is worth ``bits = log2(b)`` for the
base b, and the offsets in :class:`Classes` are multiplied by it.

``paper`` and ``target``, Algorithm 2 and Eq. 16
    Each pixel has an *anchor* and a *rival*. A class is measured against the
    anchor's score, the anchor itself against the rival's:

        lambda_k = s_k - (rival if k is an anchor else anchor)

    ===========  ========================  ==========================
    form         anchor                    rival
    ===========  ========================  ==========================
    ``paper``    the top score (Eq. 8)     the second score
    ``target``   the score of the label    the best other score
    ===========  ========================  ==========================

    The loss is ``sum_k w_k log_b(1 + b^x_k)`` with ``x_k = rho_k0 -
    lambda_k`` for the label and ``x_k = rho_0k + lambda_k`` for the others.
    So ``g_k = dl/dlambda_k = -/+ w_k sigmoid(x_k ln b)``, and by the chain
    rule ``dl/ds_k`` is ``g_k`` less what k receives as anchor or rival: every
    class but the anchor sends its ``g`` to the anchor, and the anchor sends
    its own to the rival. Equal scores share evenly what they receive. A focus
    multiplies each term by ``(2 sigmoid(x_k ln b))^focus``.

``softmax`` and ``jaccard``
    With ``p`` the softmax of ``z_k = (s_k + rho_0k) ln b``, at the label
    ``(s_y - rho_y0) ln b``, the softmax form is ``w_y`` times the focal loss
    ``(2 q)^focus log(1/p_y)`` with ``q = 1 - p_y``. The Jaccard form adds
    ``sum_k w_k e_k``, the error ``e_k`` being ``p_k``, or ``q`` at the label,
    with weights that are read from tables by the error and then held
    constant.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

PerClass = Tensor | Sequence[float] | float
LN_2 = math.log(2)
# Further than scores lie apart, and no infinity, which times 0 is no number.
FAR = 1e30


class Costs(NamedTuple):
    """The Jaccard form's weights by the error, linear within L levels.

    Args:
        value: At the lower border of each level, and at 1, (K, L + 1).
        slope: To the next border, (K, L + 1), the last 0.
        first: Where the row of each class begins in the tables, (K, 1).
    """

    value: Tensor
    slope: Tensor
    first: Tensor

    @staticmethod
    def of(borders: Tensor) -> 'Costs':
        """From the values at the borders, (K, L + 1)."""
        K, size = borders.shape
        first = torch.arange(0, K * size, size, device=borders.device)
        return Costs(
            borders.contiguous(),
            borders.diff(append=borders[:, -1:]),
            first.to(torch.int32).unsqueeze(1),
        )


class Classes(NamedTuple):
    """Constants of the K classes, each (K, 1); offsets in bits.

    The costs of the errors of a class's own and of other pixels are the
    Jaccard form's.
    """

    number: Tensor
    rho_0k: Tensor
    rho_k0: Tensor
    pos_weight: Tensor
    neg_weight: Tensor
    own_cost: Costs
    other_cost: Costs

    @staticmethod
    def of(
        scores: Tensor,
        bits: float,
        rho_0k: PerClass,
        rho_k0: PerClass,
        pos_weight: PerClass = 1.0,
        neg_weight: PerClass = 1.0,
    ) -> 'Classes':
        """For scores (N, K, ...), in the dtype to compute in; no costs."""
        K, device = scores.shape[1], scores.device
        dtype = torch.promote_types(scores.dtype, torch.float32)

        def per_class(value: PerClass) -> Tensor:
            value = torch.as_tensor(value, dtype=dtype, device=device)
            return value.expand(K).reshape(K, 1)

        no_costs = Costs.of(per_class(0.0))
        return Classes(
            torch.arange(K, dtype=torch.int32, device=device).unsqueeze(1),
            bits * per_class(rho_0k),
            bits * per_class(rho_k0),
            per_class(pos_weight),
            per_class(neg_weight),
            no_costs,
            no_costs,
        )


class Rules(NamedTuple):
    """How the loss of a pixel is formed; a kernel is compiled for each."""

    form: str
    bits: float
    focus: float
    count_hits: bool = False


class PixelTerms(NamedTuple):
    """Weighted loss (1, P), its gradient (K, P), and the number of hits.

    The compiler stores an intermediate that is returned, where it would
    otherwise compute it again in each loop: hence ``stored``.
    """

    loss: Tensor
    gradient: Tensor
    hits: Tensor
    stored: tuple[Tensor, ...] = ()


def loss_and_gradient(
    scores: Tensor,
    labels: Tensor,
    weight: Tensor,
    classes: Classes,
    rules: Rules,
) -> PixelTerms:
    """The terms of P pixels, each times its weight (1, P)."""
    own = labels == classes.number
    if rules.form in ('softmax', 'jaccard'):
        terms = softmax_terms(scores, labels, own, weight, classes, rules)
    else:
        terms = margin_terms(scores, own, weight, classes, rules)
    loss, gradient, *stored = terms
    hits = labels.new_zeros((), dtype=torch.long)
    if rules.count_hits:
        # Whose label has no better class, which is quicker than argmax.
        is_top = _only(own, scores) == scores.amax(0, keepdim=True)
        hits = (is_top & (labels >= 0)).sum()
    return PixelTerms(loss, gradient, hits, tuple(stored))


def margin_terms(
    scores: Tensor,
    own: Tensor,
    weight: Tensor,
    classes: Classes,
    rules: Rules,
) -> tuple[Tensor, ...]:
    """Algorithm 2: the paper's and the target form."""
    if rules.form == 'paper':
        anchor = scores.amax(0, keepdim=True)
        is_anchor = scores == anchor
    else:
        anchor, is_anchor = _only(own, scores), own
    others = torch.where(is_anchor, -FAR, scores)
    rival = others.amax(0, keepdim=True)
    is_rival = others == rival
    # Tied anchors are each other's rivals.
    anchors = _count(is_anchor, scores)
    rival = torch.where(anchors > 1, anchor, rival)
    margin = rules.bits * (scores - torch.where(is_anchor, rival, anchor))
    x = torch.where(own, classes.rho_k0 - margin, classes.rho_0k + margin)
    log_loss, sigmoid = _log_loss_and_sigmoid(x)
    w = weight * torch.where(own, classes.pos_weight, classes.neg_weight)
    slope = sigmoid
    if rules.focus:
        w = w * (2 * sigmoid) ** rules.focus
        slope = sigmoid + rules.focus * LN_2 * (1 - sigmoid) * log_loss
    loss = (w * log_loss).sum(0, keepdim=True) / rules.bits
    # An infinite score at the label is not hidden.
    loss = loss + (anchor - anchor)
    g = w * torch.where(own, -slope, slope)
    from_anchors = _only(is_anchor, g)
    to_anchor = (g.sum(0, keepdim=True) - from_anchors) / anchors
    to_rival = from_anchors / _count(is_rival, scores)
    # Tied anchors receive from each other, and nobody else does.
    tied = (anchors > 1).to(g.dtype) / (anchors - 1).clamp(min=1)
    to_anchor = to_anchor + (from_anchors - g) * tied
    to_rival = torch.where(is_rival & (tied == 0), to_rival, 0.0)
    return loss, g - torch.where(is_anchor, to_anchor, to_rival)


def softmax_terms(
    scores: Tensor,
    labels: Tensor,
    own: Tensor,
    weight: Tensor,
    classes: Classes,
    rules: Rules,
) -> tuple[Tensor, ...]:
    """The softmax form and the Jaccard form."""
    offset = torch.where(own, -classes.rho_k0, classes.rho_0k)
    z = rules.bits * scores + offset
    top = z.amax(0, keepdim=True)
    e = (LN_2 * (z - top)).exp()
    total = e.sum(0, keepdim=True)
    log_loss = total.log2() + top - _only(own, z)
    error = -torch.expm1(-LN_2 * log_loss)
    w = weight * _only(own, classes.pos_weight)
    w, slope = focused(w, error, log_loss, rules.focus)
    loss = w * log_loss / rules.bits
    less = torch.where(own, slope, 0.0)
    if rules.form == 'softmax':
        return loss, e * (slope / total) - less
    p = e * (1 / total)
    own_cost = _cost(classes.own_cost, error, labels.clamp(min=0).long())
    other_cost = _cost(classes.other_cost, p)
    c = torch.where(own, -own_cost, other_cost)
    mean = (c * p).sum(0, keepdim=True)
    loss = loss + weight * (mean + own_cost)
    scale = LN_2 * rules.bits * weight
    gradient = p * (scale * c + (slope - scale * mean)) - less
    return loss, gradient, c, own_cost


def focused(
    w: Tensor, error: Tensor, log_loss: Tensor, focus: float
) -> tuple[Tensor, Tensor]:
    """The weight of a log-loss with a focus, and that of its gradient."""
    if not focus:
        return w, w
    # Below the smallest step of a float the power has no slope.
    q = error.clamp(min=torch.finfo(error.dtype).tiny)
    w = w * (2 * q) ** focus
    return w, w * (1 + focus * LN_2 * (1 - q) * log_loss / q)


def _cost(costs: Costs, error: Tensor, row: Tensor | None = None) -> Tensor:
    """What errors (K, P) cost, or errors (1, P) of the classes in a row."""
    last = costs.value.shape[1] - 1
    place = error * last
    level = place.to(torch.int32).clamp(0, last)
    index = level.long()
    if row is None:
        value, slope = (
            costs.value.gather(1, index),
            costs.slope.gather(1, index),
        )
    else:
        value, slope = costs.value[row, index], costs.slope[row, index]
    return value + slope * (place - level)


def _only(mask: Tensor, x: Tensor) -> Tensor:
    """The sum of a pixel's classes in the mask, (1, P)."""
    return torch.where(mask, x, 0.0).sum(0, keepdim=True)


def _count(mask: Tensor, like: Tensor) -> Tensor:
    """How many classes of a pixel, (1, P), but never 0."""
    return mask.to(like.dtype).sum(0, keepdim=True).clamp(min=1)


def _log_loss_and_sigmoid(x: Tensor) -> tuple[Tensor, Tensor]:
    """``log2(1 + 2^x)`` and its derivative; 2^-|x| never overflows."""
    tail = torch.exp(-LN_2 * x.abs())
    log_loss = x.clamp(min=0) + _log2_of_one_and(tail)
    return log_loss, torch.where(x >= 0, 1.0, tail) / (1 + tail)


def _log2_of_one_and(u: Tensor) -> Tensor:
    """``log2(1 + u)`` for 0 <= u <= 1, to 1e-8: a third of log1p's time.

    The series of ``2 atanh(z)`` with ``z = u / (2 + u) <= 1/3``.
    """
    if u.dtype == torch.float64:
        return torch.log1p(u) / LN_2
    z = u / (2 + u)
    square = z * z
    series = square / 13 + 1 / 11
    for odd in (9, 7, 5, 3, 1):
        series = series * square + 1 / odd
    return (2 / LN_2) * z * series
