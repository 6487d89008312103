r"""Algorithm 2 and Eq. 16 with their gradient in closed form, in one pass.

Each pixel has an *anchor* and a *rival*. A class is measured against the
anchor's score, the anchor itself against the rival's:

    lambda_ik = s_ik - (rival_i if k is an anchor else anchor_i)

===========  ========================  ==========================
form         anchor                    rival
===========  ========================  ==========================
``paper``    the top score (Eq. 8)     the second score
``target``   the score of the label    the best other score
===========  ========================  ==========================

The loss of a pixel is ``sum_k w_k log_b(1 + b^x_k)`` with ``x_k = rho_k0 -
lambda_k`` for the label and ``x_k = rho_0k + lambda_k`` for the other
classes. So ``g_k = dl/dlambda_k = -/+ w_k sigmoid(x_k ln b)``, and by the
chain rule ``dl/ds_k`` is ``g_k`` less what k receives as anchor or rival:
every class but the anchor sends its ``g`` to the anchor, and the anchor sends
its own to the rival. Equal scores share evenly what they receive. A focus
multiplies each term by ``(2 sigmoid(x_k ln b))^focus``.

Only comparisons with two values of a pixel are needed: no index, gather or
sort, so that the stages compile to plain vector instructions. Eagerly they
run on all classes at once; compiled, on one class at a time, which unrolls
into one loop over the pixels.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

FORMS = ('paper', 'target')
LOG2_E = 1 / math.log(2)
Log1p = Callable[[Tensor], Tensor]


class Classes(NamedTuple):
    """Constants of K classes, each (1, K, 1, ...)."""

    label: Tensor
    rho_0k: Tensor
    rho_k0: Tensor
    pos_weight: Tensor
    neg_weight: Tensor

    def split(self, size: int) -> Iterator['Classes']:
        return map(Classes._make, zip(*(x.split(size, 1) for x in self)))


class Flow(NamedTuple):
    """What the anchors and rivals of a pixel receive, each (N, 1, ...)."""

    total: Tensor
    from_anchors: Tensor
    anchors: Tensor
    rivals: Tensor

    def plus(self, *more: Tensor) -> 'Flow':
        return Flow(*(a + b for a, b in zip(self, more)))


class TermRules(NamedTuple):
    """How the terms of a pixel are formed; fixed while training."""

    form: str
    log2_base: float
    focus: float
    ignore_index: int
    block: int = 1
    log1p: Log1p = torch.log1p


def log1p_of_fraction(u: Tensor) -> Tensor:
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


def find_anchor_and_rival(
    state: tuple[Tensor, Tensor],
    scores: Tensor,
    labels: Tensor,
    classes: Classes,
    objective: TermRules,
) -> tuple[Tensor, Tensor]:
    """Carry anchor and rival, each (N, 1, ...), over some more classes."""
    anchor, rival = state
    for row, k in zip(scores.split(1, 1), classes.label.split(1, 1)):
        row = row.to(anchor.dtype)
        if objective.form == 'paper':
            rival = torch.maximum(rival, torch.minimum(anchor, row))
            anchor = torch.maximum(anchor, row)
        else:
            is_label = labels == k
            anchor = torch.where(is_label, row, anchor)
            others = torch.where(is_label, -math.inf, row)
            rival = torch.maximum(rival, others)
    return anchor, rival


def evaluate_terms(
    scores: Tensor,
    labels: Tensor,
    anchor: Tensor,
    rival: Tensor,
    classes: Classes,
    objective: TermRules,
) -> tuple[Tensor, list[Tensor], Flow]:
    """Loss (N, 1, ...), ``g`` by blocks of classes, and its flow."""
    loss = torch.zeros_like(anchor)
    flow, gradients = Flow(loss, loss, loss, loss), []
    blocks = scores.split(objective.block, 1)
    for s, cls in zip(blocks, classes.split(objective.block)):
        s = s.to(anchor.dtype)
        is_label, is_anchor, is_rival = _masks(
            s, labels, anchor, rival, cls, objective
        )
        margin = s - torch.where(is_anchor, rival, anchor)
        x = torch.where(is_label, cls.rho_k0 - margin, cls.rho_0k + margin)
        w = torch.where(is_label, cls.pos_weight, cls.neg_weight)
        x = x * objective.log2_base
        # 2^-|x| never overflows; log2(1 + 2^x) follows by the sign of x.
        tail = torch.exp2(-x.abs())
        softplus = x.clamp(min=0) + objective.log1p(tail) * LOG2_E
        sigmoid = torch.where(x >= 0, 1.0, tail) / (1 + tail)
        slope = sigmoid
        if objective.focus:
            w = w * (2 * sigmoid) ** objective.focus
            rest = (1 - sigmoid) * softplus / LOG2_E
            slope = sigmoid + objective.focus * rest
        g = w * torch.where(is_label, -slope, slope)
        loss = loss + (w * softplus).sum(1, keepdim=True)
        flow = flow.plus(
            g.sum(1, keepdim=True),
            torch.where(is_anchor, g, 0.0).sum(1, keepdim=True),
            is_anchor.to(g.dtype).sum(1, keepdim=True),
            is_rival.to(g.dtype).sum(1, keepdim=True),
        )
        gradients.append(g)
    return loss / objective.log2_base, gradients, flow


def apply_chain_rule(
    gradients: Sequence[Tensor],
    scores: Tensor,
    labels: Tensor,
    anchor: Tensor,
    rival: Tensor,
    flow: Flow,
    classes: Classes,
    objective: TermRules,
) -> Tensor:
    """From dl/dlambda to dl/ds, (N, K, ...) in the dtype of the scores."""
    others = (flow.total - flow.from_anchors) / flow.anchors.clamp(min=1)
    # Tied anchors are each other's rivals, so nobody else receives.
    tied = (flow.anchors > 1) / (flow.anchors - 1).clamp(min=1)
    to_rival = flow.from_anchors / flow.rivals.clamp(min=1)
    blocks = scores.split(objective.block, 1)
    result = []
    for g, s, cls in zip(gradients, blocks, classes.split(objective.block)):
        s = s.to(g.dtype)
        _, is_anchor, is_rival = _masks(
            s, labels, anchor, rival, cls, objective
        )
        to_anchor = others + (flow.from_anchors - g) * tied
        received = torch.where(is_rival, to_rival, 0.0)
        received = torch.where(is_anchor, to_anchor, received)
        result.append((g - received).to(scores.dtype))
    return torch.cat(result, 1)


def _masks(
    s: Tensor,
    labels: Tensor,
    anchor: Tensor,
    rival: Tensor,
    classes: Classes,
    objective: TermRules,
) -> tuple[Tensor, Tensor, Tensor]:
    is_label = labels == classes.label
    if objective.form == 'paper':
        # Where the top is tied this holds for anchors too; they go first.
        return is_label, s == anchor, s == rival
    return is_label, is_label, (s == rival) & ~is_label


class Stages(NamedTuple):
    """The three stages, as they are or compiled."""

    find: Callable = find_anchor_and_rival
    evaluate: Callable = evaluate_terms
    apply: Callable = apply_chain_rule


AS_THEY_ARE = Stages()


def loss_and_gradient(
    scores: Tensor,
    labels: Tensor,
    classes: Classes,
    objective: TermRules,
    stages: Stages = AS_THEY_ARE,
    group: int | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """Loss (N, 1, ...) of every pixel and its gradient by groups of classes.

    Args:
        scores: (N, K, ...).
        labels: (N, 1, ...), int32.
        classes: Constants of the K classes, in the dtype to compute in.
        objective: How the terms are formed.
        stages: The implementation of the stages.
        group: How many classes a stage sees at once; all if None.
    """
    size = group or scores.shape[1]
    groups = list(zip(scores.split(size, 1), classes.split(size)))
    lowest = scores.new_full(
        labels.shape, -math.inf, dtype=classes.rho_0k.dtype
    )
    # An ignored pixel finds no label to be measured against. It stays finite,
    # so that the caller can multiply its gradient by 0.
    first_anchor = (
        lowest if objective.form == 'paper' else torch.zeros_like(lowest)
    )
    state = (first_anchor, lowest)
    for s, cls in groups:
        state = stages.find(state, s, labels, cls, objective)
    parts = [
        stages.evaluate(s, labels, *state, cls, objective) for s, cls in groups
    ]
    loss, _, flow = parts[0]
    for more_loss, _, more_flow in parts[1:]:
        loss, flow = loss + more_loss, flow.plus(*more_flow)
    gradient = [
        stages.apply(g, s, labels, *state, flow, cls, objective)
        for (s, cls), (_, g, _) in zip(groups, parts)
    ]
    return loss, gradient
