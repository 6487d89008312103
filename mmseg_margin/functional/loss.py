"""The objective of Algorithm 2 for training, at the cost of cross-entropy."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .backend import PixelLoss, choose_backend
from .fused import FORMS as FUSED_FORMS
from .fused import Classes, TermRules
from .softmax_form import softmax_form_loss

FORMS = (*FUSED_FORMS, 'softmax')

PerClass = Tensor | Sequence[float] | float


def margin_calibration_loss(
    scores: Tensor,
    labels: Tensor,
    rho_0k: PerClass,
    rho_k0: PerClass,
    *,
    form: str = 'paper',
    pos_weight: PerClass | str = 1.0,
    neg_weight: PerClass = 1.0,
    log_base: float | str = 2,
    focus: float = 0.0,
    ignore_index: int = 255,
    reduction: str = 'mean',
    backend: str = 'auto',
) -> Tensor:
    """Margin-calibrated log-loss (Eq. 16) with a closed-form gradient.

    Args:
        scores: (N, K, ...), K >= 2, any floating type; computed in float32
            (float64 for float64), the gradient has the type of the scores.
        labels: (N, ...), integers in [0, K) or ``ignore_index``.
        rho_0k: Offsets of the background terms, (K,) or a number.
        rho_k0: Offsets of the foreground terms, (K,) or a number.
        form: ``'paper'`` measures every class against the best other class,
            ``'target'`` the background classes against the label,
            ``'softmax'`` takes one logarithm for all of them.
        pos_weight: Weight of the foreground term by the label's class, (K,),
            a number, or ``'num_classes'``.
        neg_weight: Weight of each class's background terms, (K,) or a number;
            the softmax form has no such terms.
        log_base: Base of the logarithm, 2 in the paper, or ``'e'``.
        focus: How strongly the terms beyond their margin are played down; 0
            in the paper.
        ignore_index: Label of the pixels that are left out.
        reduction: ``'none'`` for (N, ...), ``'sum'``, or ``'mean'`` over the
            labelled pixels; 0 if there is none.
        backend: ``'compiled'``, ``'eager'``, or ``'auto'``: compiled where a
            compiler is present.

    Example:
        >>> from mmseg_margin.functional import margin_offsets
        >>> rho_0k, rho_k0 = margin_offsets([900, 100])
        >>> scores = torch.tensor([[2.0, 0.0]])
        >>> loss = margin_calibration_loss(
        ...     scores, torch.tensor([0]), rho_0k, rho_k0, backend='eager')
        >>> round(float(loss), 4)
        1.9126
    """
    pixel_loss = pixel_calibration_loss(
        scores,
        labels,
        rho_0k,
        rho_k0,
        form=form,
        pos_weight=pos_weight,
        neg_weight=neg_weight,
        log_base=log_base,
        focus=focus,
        ignore_index=ignore_index,
        backend=backend,
    )
    if reduction == 'none':
        return pixel_loss
    if reduction == 'sum':
        return pixel_loss.sum()
    if reduction != 'mean':
        raise ValueError(
            f"reduction={reduction!r} is not 'none', 'sum' or 'mean'."
        )
    return pixel_loss.sum() / (labels != ignore_index).sum().clamp(min=1)


@torch.compiler.disable
def pixel_calibration_loss(
    scores: Tensor,
    labels: Tensor,
    rho_0k: PerClass,
    rho_k0: PerClass,
    *,
    form: str,
    pos_weight: PerClass | str,
    neg_weight: PerClass,
    log_base: float | str,
    focus: float,
    ignore_index: int,
    backend: str,
) -> Tensor:
    """The loss of every pixel, (N, ...), 0 where the label is ignored.

    It compiles its own kernel, so an enclosing ``torch.compile`` calls it as
    it is.
    """
    num_classes = _check_shapes(scores, labels)
    if form not in FORMS:
        raise ValueError(f'form={form!r} is not one of {FORMS}.')
    if not 0 <= focus < math.inf:
        raise ValueError(f'focus={focus!r} must not be negative.')
    if pos_weight == 'num_classes':
        pos_weight = float(num_classes)
    if scores.dim() == 2:
        # One row of pixels instead of many images of one pixel.
        scores, labels = scores.t().unsqueeze(0), labels.unsqueeze(0)
        shape = labels.shape[1:]
    else:
        shape = labels.shape
    double = scores.dtype == torch.float64
    dtype = torch.float64 if double else torch.float32
    rho_0k, rho_k0, pos_weight, neg_weight = (
        torch.as_tensor(value, dtype=dtype, device=scores.device).expand(
            num_classes
        )
        for value in (rho_0k, rho_k0, pos_weight, neg_weight)
    )
    log2_base, ignored = _log2_of(log_base), labels == ignore_index
    if form == 'softmax':
        known = torch.where(ignored, 0, labels).long()
        nats = log2_base * math.log(2)
        loss = pos_weight[known] * softmax_form_loss(
            scores.to(dtype), known, rho_0k, rho_k0, nats, focus
        )
    else:
        index = torch.arange(
            num_classes, dtype=torch.int32, device=scores.device
        )
        classes = (index, rho_0k, rho_k0, pos_weight, neg_weight)
        loss = PixelLoss.apply(
            scores,
            labels,
            Classes(*(x.reshape(1, -1, 1) for x in classes)),
            TermRules(form, log2_base, float(focus), ignore_index),
            choose_backend(scores.device, backend),
        )
    return torch.where(ignored, 0.0, loss).view(shape)


def _log2_of(log_base: float | str) -> float:
    base = math.e if log_base == 'e' else float(log_base)
    if not base > 1:
        raise ValueError(f"log_base={log_base!r} must be above 1, or 'e'.")
    return math.log2(base)


def _check_shapes(scores: Tensor, labels: Tensor) -> int:
    expected = scores.shape[:1] + scores.shape[2:]
    if scores.dim() < 2 or labels.shape != expected:
        raise ValueError(
            'scores must be (N, K, ...) and labels (N, ...), got '
            f'{tuple(scores.shape)} and {tuple(labels.shape)}.'
        )
    num_classes = scores.shape[1]
    if num_classes < 2:
        raise ValueError(
            'A margin needs at least two classes, got scores of one channel: '
            'set out_channels=2 (and num_classes=2) in the head.'
        )
    return num_classes
