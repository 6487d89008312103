"""The kernels as single torch operators, with as few passes as possible.

The same maths as :mod:`.kernels`, which see. An operator costs a pass through
the cache, so intermediates are overwritten, a class's own row is read and
written by index, and masks are numbers, because torch reads bytes one at a
time. Powers of two take half the time of powers of e.
"""

import torch
from torch import Tensor

from .kernels import FAR, LN_2, Classes, Costs, PixelTerms, Rules, focused

# 2^LIMIT is finite, and log2(1 + 2^x) = x beyond it.
LIMIT = 60.0


def loss_and_gradient(
    scores: Tensor,
    labels: Tensor,
    weight: Tensor,
    classes: Classes,
    rules: Rules,
) -> PixelTerms:
    """The terms of P pixels, each times its weight (1, P)."""
    label = labels.clamp(min=0).long()
    own = scores.gather(0, label)
    top, hits = own, labels.new_zeros((), dtype=torch.long)
    if rules.count_hits or rules.form == 'paper':
        top = scores.amax(0, keepdim=True)
    if rules.count_hits:
        hits = ((own == top) & (labels >= 0)).sum()
    if rules.form in ('softmax', 'jaccard'):
        terms = softmax_terms(scores, own, label, weight, classes, rules)
    else:
        anchor = top if rules.form == 'paper' else own
        terms = margin_terms(
            scores, own, anchor, label, weight, classes, rules
        )
    return PixelTerms(*terms, hits)


def margin_terms(
    scores: Tensor,
    own: Tensor,
    anchor: Tensor,
    label: Tensor,
    weight: Tensor,
    classes: Classes,
    rules: Rules,
) -> tuple[Tensor, Tensor]:
    """Algorithm 2: the paper's and the target form."""
    is_anchor = torch.zeros_like(scores)
    if rules.form == 'paper':
        torch.eq(scores, anchor, out=is_anchor)
    else:
        is_anchor.scatter_(0, label, 1.0)
    others = torch.sub(scores, is_anchor, alpha=FAR)
    rival = others.amax(0, keepdim=True)
    is_rival = torch.eq(others, rival, out=others)
    anchors = is_anchor.sum(0, keepdim=True)
    # Tied anchors are each other's rivals.
    tied = (anchors > 1).to(scores.dtype)
    lead = (anchor - rival).mul_(rules.bits).masked_fill_(anchors > 1, 0.0)
    # Every class as another's first, then the label for itself.
    x = torch.add(classes.rho_0k, scores, alpha=rules.bits)
    x.sub_(rules.bits * anchor).addcmul_(is_anchor, lead)
    x.scatter_(0, label, -torch.inf)
    margin = rules.bits * (own - anchor) + lead * (own == anchor)
    x_own = at_label(classes.rho_k0, label) - margin
    loss, g = _log_loss(x, rules.focus)
    loss_own, g_own = _log_loss(x_own, rules.focus)
    w_own = weight * at_label(classes.pos_weight, label)
    loss = weight * (classes.neg_weight.t() @ loss)
    loss.addcmul_(w_own, loss_own).div_(rules.bits)
    g.mul_(classes.neg_weight).mul_(weight)
    g.scatter_(0, label, g_own.mul_(w_own).neg_())
    of_anchors = is_anchor * g
    from_anchors = of_anchors.sum(0, keepdim=True)
    # Tied anchors receive from each other, and nobody else does.
    each_other = tied / (anchors - 1).clamp_(min=1)
    to_anchor = (g.sum(0, keepdim=True) - from_anchors) / anchors
    to_anchor.addcmul_(from_anchors, each_other)
    to_rival = (1 - tied) * from_anchors / is_rival.sum(0, keepdim=True)
    g.addcmul_(of_anchors, each_other)
    g.addcmul_(is_anchor, to_anchor, value=-1)
    g.addcmul_(is_rival, to_rival, value=-1)
    return loss, g


def _log_loss(x: Tensor, focus: float) -> tuple[Tensor, Tensor]:
    """``log2(1 + 2^x)`` in the place of x, and its derivative."""
    power = x.clamp(max=LIMIT).exp2_()
    loss = x.sub_(LIMIT).clamp_(min=0)
    loss.add_(power.log1p(), alpha=1 / LN_2)
    sigmoid = power.div_(power + 1)
    if not focus:
        return loss, sigmoid
    factor = (2 * sigmoid).pow_(focus)
    slope = (1 - sigmoid).mul_(loss).mul_(focus * LN_2).add_(sigmoid)
    return loss.mul_(factor), slope.mul_(factor)


def softmax_terms(
    scores: Tensor,
    own: Tensor,
    label: Tensor,
    weight: Tensor,
    classes: Classes,
    rules: Rules,
) -> tuple[Tensor, Tensor]:
    """The softmax form and the Jaccard form."""
    power, total, log_loss = powers(scores, own, label, classes, rules.bits)
    w = weight * at_label(classes.pos_weight, label)
    error = torch.expm1(-LN_2 * log_loss).neg_()
    w, slope = focused(w, error, log_loss, rules.focus)
    loss = w * log_loss / rules.bits
    if rules.form == 'softmax':
        gradient = power.mul_(slope / total)
        return loss, gradient.scatter_add_(0, label, -slope)
    p = power.div_(total)
    own_cost = costs_at(classes.own_cost, error, label)
    cost = costs_at(classes.other_cost, p)
    cost.scatter_(0, label, -own_cost).mul_(p)
    mean = cost.sum(0, keepdim=True)
    loss.addcmul_(weight, mean + own_cost)
    scale = LN_2 * rules.bits * weight
    gradient = cost.mul_(scale).addcmul_(p, slope - scale * mean)
    return loss, gradient.scatter_add_(0, label, -slope)


def powers(
    scores: Tensor, own: Tensor, label: Tensor, classes: Classes, bits: float
) -> tuple[Tensor, Tensor, Tensor]:
    """What a softmax is made of, and ``log2(1 / p_y)``, (1, P)."""
    z = torch.add(classes.rho_0k, scores, alpha=bits)
    own = bits * own - at_label(classes.rho_k0, label)
    z.scatter_(0, label, own)
    top = z.amax(0, keepdim=True)
    power = z.sub_(top).exp2_()
    total = power.sum(0, keepdim=True)
    return power, total, total.log2().add_(top).sub_(own)


def costs_at(costs: Costs, error: Tensor, row: Tensor | None = None) -> Tensor:
    """The costs of errors (K, P), or of (1, P) of the classes in a row."""
    last = costs.value.shape[1] - 1
    place = error * last
    level = level_of(place, last)
    level += costs.first if row is None else at_label(costs.first, row)
    level = level.flatten()
    cost, slope = (
        table.flatten().index_select(0, level).view_as(error)
        for table in (costs.value, costs.slope)
    )
    return cost.addcmul_(slope, place.frac_())


def level_of(place: Tensor, last: int) -> Tensor:
    """The whole part, int32; what is no number stays inside too."""
    return place.to(torch.int32).clamp_(0, last)


def at_label(constants: Tensor, label: Tensor) -> Tensor:
    """The label's of K constants (K, 1), for labels (1, P)."""
    return constants.flatten().index_select(0, label[0])
