r"""Algorithm 2: the margin-calibrated log-loss and its gradient.

Eq. 16, for a pixel with scores ``s_k`` and label y:

    lambda_k = s_k - max_{j != k} s_j                                  (Eq. 8)
    l = w log_b(1 + b^(rho_y0 - lambda_y))
        + sum_{k != y} log_b(1 + b^(lambda_k + rho_0k))

Only the two highest scores enter the margins: every class is measured against
the *top* score, and the top class against the *second*. So with ``x_y =
rho_y0 - lambda_y`` and ``x_k = rho_0k + lambda_k`` for the others,

    g_k = dl/dlambda_k = -w sigmoid(x_y ln b)    for the label
                          sigmoid(x_k ln b)      for the others
    dl/ds_k = g_k - [k is top] sum_{j != top} g_j - [k is second] g_top

and one pass over the scores gives loss and gradient. Classes with equal scores
share this gradient evenly; tied top classes are each other's second.

Powers and logarithms are computed to base 2, so margins and offsets are
multiplied by ``bits = log2(b)``.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from mmseg_margin.errors import SettingError

from .backend import (
    Pixels,
    StageResult,
    count_hits,
    fusible_hits,
    select_label,
)
from .margins import large_offset_warning
from .settings import MarginSettings
from .stage import reduced_loss
from .triton_launch import Stage

PerClass = Tensor | np.ndarray | Sequence[float] | float
LN_2 = math.log(2)
# Larger than any difference of scores, but finite, because inf * 0 is NaN.
FAR = 1e30
# 2^LIMIT is finite, and log2(1 + 2^x) = x beyond it.
LIMIT = 60.0


@dataclass(frozen=True)
class MarginObjective:
    """Eq. 16 with the offsets of Algorithm 1, (K,) or one for all classes."""

    rho_0k: PerClass
    rho_k0: PerClass
    settings: MarginSettings = field(default_factory=MarginSettings)
    name: ClassVar[str] = 'margin'

    def numbers(self, num_classes: int) -> tuple[float, ...]:
        """Bits, and the weights of the label's term and of the others."""
        return self.settings.bits, *self.settings.term_weights(num_classes)

    def constants(self, like: Tensor, *_) -> tuple[Tensor, ...]:
        """The offsets rho_0k and rho_k0 in bits, each (K, 1)."""
        K, found = like.shape[1], []
        for name in ('rho_0k', 'rho_k0'):
            rho = torch.as_tensor(getattr(self, name)).to(like).flatten()
            if len(rho) not in (1, K):
                raise SettingError(
                    f'{name} has {len(rho)} numbers and the scores have '
                    f'{K} classes: give one offset for each class.'
                )
            found.append(self.settings.bits * rho.expand(K).unsqueeze(1))
        return tuple(found)

    @staticmethod
    def fusible(
        pixels: Pixels, constants: tuple, numbers: tuple
    ) -> StageResult:
        scores, labels, weight = pixels
        number, rho_0k, rho_k0 = constants
        bits, pos_weight, neg_weight = numbers
        is_label = labels == number
        top = scores.amax(0, keepdim=True)
        is_top = scores == top
        others = torch.where(is_top, -FAR, scores)
        second = others.amax(0, keepdim=True)
        is_second = others == second
        tops = _count(is_top, scores)
        second = torch.where(tops > 1, top, second)
        # The margins (Eq. 8), and the terms of Eq. 16.
        margin = bits * (scores - torch.where(is_top, second, top))
        x = torch.where(is_label, rho_k0 - margin, rho_0k + margin)
        log_loss, sigmoid = _log_loss_and_sigmoid(x)
        w = weight * torch.where(is_label, pos_weight, neg_weight)
        loss = (w * log_loss).sum(0, keepdim=True) / bits
        # NaN if the top score is infinite, even if its class is the label.
        loss = loss + (top - top) * weight
        # dl/ds_k, as derived above.
        g = w * torch.where(is_label, -sigmoid, sigmoid)
        from_top = select_label(is_top, g)
        to_top = (g.sum(0, keepdim=True) - from_top) / tops
        to_second = from_top / _count(is_second, scores)
        tied = (tops > 1).to(g.dtype) / (tops - 1).clamp(min=1)
        to_top = to_top + (from_top - g) * tied
        to_second = torch.where(is_second & (tied == 0), to_second, 0.0)
        gradient = g - torch.where(is_top, to_top, to_second)
        hits = fusible_hits(scores, labels, number)
        return StageResult(loss, hits, gradient)

    @staticmethod
    def eager(pixels: Pixels, constants: tuple, numbers: tuple) -> StageResult:
        scores, labels, weight = pixels
        _, rho_0k, rho_k0 = constants
        bits, pos_weight, neg_weight = numbers
        index = labels.clamp(min=0).long()
        is_labelled = labels >= 0
        top = scores.amax(0, keepdim=True)
        # A finite loss for ignored pixels, because 0 * inf is NaN.
        label_score = torch.where(is_labelled, scores.gather(0, index), top)
        # Masks are numbers, because torch reads bytes one at a time.
        is_top = torch.eq(scores, top, out=torch.empty_like(scores))
        others = torch.sub(scores, is_top, alpha=FAR)
        second = others.amax(0, keepdim=True)
        is_second = torch.eq(others, second, out=others)
        tops = is_top.sum(0, keepdim=True)
        tied = (tops > 1).to(scores.dtype)
        lead = (top - second).mul_(bits).masked_fill_(tops > 1, 0.0)
        # Margins (Eq. 8) and background terms of Eq. 16, then the label's.
        x = torch.add(rho_0k, scores, alpha=bits)
        x.sub_(bits * top).addcmul_(is_top, lead)
        x.scatter_(0, index, -torch.inf)
        loss, g = _log_loss_in_place(x)
        is_hit = label_score == top
        margin = bits * (label_score - top) + lead * is_hit
        label_rho = rho_k0.flatten().index_select(0, index[0])
        label_loss, label_g = _log_loss_in_place(label_rho - margin)
        loss = loss.sum(0, keepdim=True).mul_(neg_weight)
        loss.add_(label_loss, alpha=pos_weight)
        loss.mul_(weight).div_(bits)
        g.mul_(neg_weight * weight)
        g.scatter_(0, index, label_g.mul_(-pos_weight * weight))
        # dl/ds_k, as derived above.
        of_top = is_top * g
        from_top = of_top.sum(0, keepdim=True)
        each_other = tied / (tops - 1).clamp_(min=1)
        to_top = (g.sum(0, keepdim=True) - from_top) / tops
        to_top.addcmul_(from_top, each_other)
        to_second = (1 - tied) * from_top / is_second.sum(0, keepdim=True)
        g.addcmul_(of_top, each_other)
        g.addcmul_(is_top, to_top, value=-1)
        g.addcmul_(is_second, to_second, value=-1)
        hits = count_hits(scores, labels, is_hit, tops > 1)
        return StageResult(loss, hits, g)

    def triton_stage(
        self, scores: Tensor, labels: Tensor, *others: Any
    ) -> StageResult:
        """The same on a GPU."""
        from .triton_margin import margin_kernel

        offsets = self.constants(scores[:0].float())
        bits, *weights = self.numbers(scores.shape[1])
        stage = Stage(scores, labels, *others)
        return stage.run(margin_kernel, *offsets, *weights, bits)


def _count(mask: Tensor, like: Tensor) -> Tensor:
    """Number of classes in a mask (K, P) for each pixel, at least 1."""
    return mask.to(like.dtype).sum(0, keepdim=True).clamp(min=1)


def _log_loss_in_place(x: Tensor) -> tuple[Tensor, Tensor]:
    """``log2(1 + 2^x)`` in the memory of x, and its derivative."""
    power = x.clamp(max=LIMIT).exp2_()
    loss = x.sub_(LIMIT).clamp_(min=0)
    loss.add_(power.log1p(), alpha=1 / LN_2)
    return loss, power.div_(power + 1)


def _log_loss_and_sigmoid(x: Tensor) -> tuple[Tensor, Tensor]:
    """``log2(1 + 2^x)`` and its derivative; 2^-|x| never overflows."""
    tail = torch.exp(-LN_2 * x.abs())
    log_loss = x.clamp(min=0) + _log2_of_one_plus(tail)
    return log_loss, torch.where(x >= 0, 1.0, tail) / (1 + tail)


def _log2_of_one_plus(u: Tensor) -> Tensor:
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


def margin_loss(
    scores: Tensor,
    labels: Tensor,
    rho_0k: PerClass,
    rho_k0: PerClass,
    *,
    pos_weight: float | str = 1.0,
    log_base: float | str = 2,
    class_mean: bool = False,
    align_corners: bool | None = None,
    ignore_index: int = 255,
    reduction: str = 'mean',
    backend: str = 'auto',
) -> Tensor:
    """The paper's margin-calibrated log-loss (Eq. 16).

    Args:
        scores: (N, K, ...), K >= 2, any floating type; computed in float32
            (float64 for float64), the gradient has the type of the scores.
        labels: (N, ...), integers in [0, K) or ``ignore_index``.
        rho_0k: Offsets of the background terms, (K,) or a number.
        rho_k0: Offsets of the foreground terms, (K,) or a number.
        pos_weight: See :class:`MarginSettings`, as for the next two.
        log_base: Base of the logarithm.
        class_mean: Whether terms are averaged over the classes.
        align_corners: None for full-size scores.
        ignore_index: Label of the pixels that are left out.
        reduction: ``'none'`` for (N, ...), ``'sum'``, or ``'mean'`` over the
            labelled pixels; 0 if there is none.
        backend: ``'auto'``, ``'triton'``, ``'compiled'`` or ``'eager'``.

    Example:
        >>> from mmseg_margin.functional import margin_offsets
        >>> rho_0k, rho_k0 = margin_offsets([900, 100])
        >>> scores = torch.tensor([[2.0, 0.0]])
        >>> loss = margin_loss(scores, torch.tensor([0]), rho_0k, rho_k0)
        >>> round(float(loss), 4)
        1.9135
    """
    # Not on a GPU, because reading its memory would wait for it.
    if not isinstance(rho_0k, Tensor) or rho_0k.device.type == 'cpu':
        offsets = torch.as_tensor(rho_0k).detach().numpy()
        message = large_offset_warning(offsets)
        if message:
            warnings.warn(message, stacklevel=2)
    settings = MarginSettings(pos_weight, log_base, class_mean)
    return reduced_loss(
        scores,
        labels,
        MarginObjective(rho_0k, rho_k0, settings),
        align_corners=align_corners,
        ignore_index=ignore_index,
        reduction=reduction,
        backend=backend,
    )


def upsampled_margin_loss(
    low_scores: Tensor,
    labels: Tensor,
    rho_0k: PerClass,
    rho_k0: PerClass,
    *,
    align_corners: bool = False,
    **settings: Any,
) -> Tensor:
    """:func:`margin_loss` of scores (N, K, h, w), up-sampled bilinearly.

    The scores are up-sampled to the size of the labels (N, H, W) piece by
    piece, and never materialised at that size; ``align_corners`` is that of
    ``torch.nn.functional.interpolate``.
    """
    settings.update(align_corners=align_corners)
    return margin_loss(low_scores, labels, rho_0k, rho_k0, **settings)
