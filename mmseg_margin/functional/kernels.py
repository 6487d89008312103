r"""Every form's loss and its gradient in closed form, pixel by pixel.

Scores are (K, P), labels (1, P), -1 where a pixel is ignored. Everything is
plain torch on whole tensors, which compiles to a few loops of vector
instructions. Compiled, the label's row is found by comparison, since an index
would break the loops apart; eagerly the index is cheaper than comparing every
class. The helpers at the end do what suits.

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
    with weights read from tables at the level of the error and then held
    constant.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .jaccard import level_of

# Further than scores lie apart, and no infinity, which times 0 is no number.
FAR = 1e30


class Classes(NamedTuple):
    """Constants of the K classes, each (K, 1).

    The Jaccard form's weights at L levels of error, of the class's own and of
    other pixels, are (K, L); (K, 0) for the other forms.
    """

    number: Tensor
    rho_0k: Tensor
    rho_k0: Tensor
    pos_weight: Tensor
    neg_weight: Tensor
    own_cost: Tensor
    other_cost: Tensor


class Rules(NamedTuple):
    """How the loss of a pixel is formed; a kernel is compiled for each."""

    form: str
    nats: float
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
    stored: tuple[Tensor, ...]


def loss_and_gradient(
    scores: Tensor,
    labels: Tensor,
    weight: Tensor,
    classes: Classes,
    rules: Rules,
) -> PixelTerms:
    """The terms of P pixels, each times its weight (1, P)."""
    if rules.form in ('softmax', 'jaccard'):
        terms = softmax_terms(scores, labels, weight, classes, rules)
    else:
        terms = margin_terms(scores, labels, weight, classes, rules)
    loss, gradient, *stored = terms
    if rules.count_hits:
        hits = count_hits(scores, labels, classes)
    else:
        hits = labels.new_zeros((), dtype=torch.long)
    return PixelTerms(loss, gradient, hits, tuple(stored))


def margin_terms(
    scores: Tensor,
    labels: Tensor,
    weight: Tensor,
    classes: Classes,
    rules: Rules,
) -> tuple[Tensor, ...]:
    """Algorithm 2: the paper's and the target form."""
    own = _equal(labels, classes.number, scores)
    if rules.form == 'paper':
        anchor = scores.amax(0, keepdim=True)
        is_anchor = _equal(scores, anchor, scores)
    else:
        anchor, is_anchor = _at_label(scores, labels, classes), own
    others = _without(scores, is_anchor)
    rival = others.amax(0, keepdim=True)
    is_rival = _equal(others, rival, scores)
    # Tied anchors are each other's rivals.
    anchors = _count(is_anchor, scores)
    rival = torch.where(anchors > 1, anchor, rival)
    margin = scores - _choose(is_anchor, rival, anchor)
    x = _choose(own, classes.rho_k0 - margin, classes.rho_0k + margin)
    softplus, sigmoid = _softplus_and_sigmoid(x * rules.nats)
    w = weight * _choose(own, classes.pos_weight, classes.neg_weight)
    slope = sigmoid
    if rules.focus:
        w = w * (2 * sigmoid) ** rules.focus
        slope = sigmoid + rules.focus * (1 - sigmoid) * softplus
    loss = (w * softplus).sum(0, keepdim=True) / rules.nats
    # An infinite score at the label is not hidden.
    loss = loss + (anchor - anchor)
    g = w * _choose(own, -slope, slope)
    from_anchors = _keep(is_anchor, g).sum(0, keepdim=True)
    to_anchor = (g.sum(0, keepdim=True) - from_anchors) / anchors
    to_rival = from_anchors / _count(is_rival, scores)
    # Tied anchors receive from each other, and nobody else does.
    tied = (anchors > 1).to(g.dtype) / (anchors - 1).clamp(min=1)
    to_anchor = to_anchor + (from_anchors - g) * tied
    to_rival = _keep(is_rival, to_rival * (tied == 0))
    return loss, g - _choose(is_anchor, to_anchor, to_rival)


def softmax_terms(
    scores: Tensor,
    labels: Tensor,
    weight: Tensor,
    classes: Classes,
    rules: Rules,
) -> tuple[Tensor, ...]:
    """The softmax form and the Jaccard form."""
    z = rules.nats * _shifted(scores, labels, classes)
    top = z.amax(0, keepdim=True)
    e = (z - top).exp()
    total = e.sum(0, keepdim=True)
    log_loss = total.log() + top - _at_label(z, labels, classes)
    w = weight * _at_label(classes.pos_weight.expand_as(z), labels, classes)
    slope = w
    if rules.focus:
        # Below the smallest step of a float the power has no slope.
        q = -torch.expm1(-log_loss)
        q = q.clamp(min=torch.finfo(q.dtype).tiny)
        w = w * (2 * q) ** rules.focus
        slope = w * (1 + rules.focus * (1 - q) * log_loss / q)
    loss = w * log_loss / rules.nats
    if rules.form == 'softmax':
        gradient = _less_at_label(e * (slope / total), labels, slope, classes)
        return loss, gradient
    p = e * (1 / total)
    own_cost = _own_cost(-torch.expm1(-log_loss), labels, classes)
    other_cost = classes.other_cost.gather(
        1, level_of(p, classes.other_cost.shape[1])
    )
    c = _put_at_label(other_cost, labels, -own_cost, classes)
    mean = (c * p).sum(0, keepdim=True)
    loss = loss + weight * (mean + own_cost)
    scale = rules.nats * weight
    gradient = p * (scale * c + (slope - scale * mean))
    gradient = _less_at_label(gradient, labels, slope, classes)
    return loss, gradient, c, own_cost


def _own_cost(error: Tensor, labels: Tensor, classes: Classes) -> Tensor:
    """The cost of the label's error, (1, P)."""
    known = labels.clamp(min=0).long()
    levels = classes.own_cost.shape[1]
    return classes.own_cost[known, level_of(error, levels)]


def count_hits(scores: Tensor, labels: Tensor, classes: Classes) -> Tensor:
    """How many labels have no better class, which is quicker than argmax."""
    own = _at_label(scores, labels, classes)
    is_top = (own == scores.amax(0, keepdim=True)) & (labels >= 0)
    return is_top.sum()


def _equal(a: Tensor, b: Tensor, like: Tensor) -> Tensor:
    """A mask; eagerly in numbers, because bytes are read one at a time."""
    if torch.compiler.is_compiling():
        return a == b
    return torch.eq(a.to(like), b.to(like), out=torch.empty_like(like))


def _choose(mask: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """``a`` where the mask is 1, ``b`` where it is 0."""
    if torch.compiler.is_compiling():
        return torch.where(mask, a, b)
    return torch.lerp(b, a, mask)


def _keep(mask: Tensor, x: Tensor) -> Tensor:
    """``x`` where the mask is 1, else 0."""
    if torch.compiler.is_compiling():
        return torch.where(mask, x, 0.0)
    return mask * x


def _without(x: Tensor, mask: Tensor) -> Tensor:
    """``x``, but far below where the mask is 1."""
    if torch.compiler.is_compiling():
        return torch.where(mask, -FAR, x)
    return torch.sub(x, mask, alpha=FAR)


def _count(mask: Tensor, like: Tensor) -> Tensor:
    """How many classes of a pixel, (1, P), but never 0."""
    return mask.to(like.dtype).sum(0, keepdim=True).clamp(min=1)


def _softplus_and_sigmoid(x: Tensor) -> tuple[Tensor, Tensor]:
    """``log(1 + exp(x))`` and its derivative; exp(-|x|) never overflows."""
    tail = torch.exp(-x.abs())
    if torch.compiler.is_compiling():
        softplus = x.clamp(min=0) + _log1p_of_fraction(tail)
        return softplus, torch.where(x >= 0, 1.0, tail) / (1 + tail)
    return tail.log1p_().add_(x.clamp(min=0)), torch.sigmoid(x)


def _shifted(scores: Tensor, labels: Tensor, classes: Classes) -> Tensor:
    """``s_k + rho_0k``, and ``s_y - rho_y0`` at the label."""
    if torch.compiler.is_compiling():
        own = labels == classes.number
        return scores + torch.where(own, -classes.rho_k0, classes.rho_0k)
    shifted = scores + classes.rho_0k
    known = labels.clamp(min=0).long()
    of_label = scores.gather(0, known) - classes.rho_k0[known[0], 0]
    return shifted.scatter_(0, known, of_label)


def _at_label(x: Tensor, labels: Tensor, classes: Classes) -> Tensor:
    """The label's row, (1, P)."""
    if torch.compiler.is_compiling():
        own = labels == classes.number
        return torch.where(own, x, 0.0).sum(0, keepdim=True)
    return x.gather(0, labels.clamp(min=0).long())


def _put_at_label(
    x: Tensor, labels: Tensor, value: Tensor, classes: Classes
) -> Tensor:
    """``x``, an intermediate, with (1, P) in the label's row."""
    if torch.compiler.is_compiling():
        return torch.where(labels == classes.number, value, x)
    return x.scatter_(0, labels.clamp(min=0).long(), value)


def _less_at_label(
    x: Tensor, labels: Tensor, value: Tensor, classes: Classes
) -> Tensor:
    """``x``, an intermediate, less (1, P) in the label's row."""
    if torch.compiler.is_compiling():
        return x - torch.where(labels == classes.number, value, 0.0)
    return x.scatter_add_(0, labels.clamp(min=0).long(), -value)


def _log1p_of_fraction(u: Tensor) -> Tensor:
    """``log(1 + u)`` for 0 <= u <= 1, to 1e-8: a third of log1p's time.

    The series of ``2 atanh(z)`` with ``z = u / (2 + u) <= 1/3``.
    """
    if u.dtype == torch.float64:
        return torch.log1p(u)
    z = u / (2 + u)
    square = z * z
    series = square / 13 + 1 / 11
    for odd in (9, 7, 5, 3, 1):
        series = series * square + 1 / odd
    return 2 * z * series
