"""The loss of Algorithm 2 and its forms for training, on full-size scores."""

import torch
from torch import Tensor

from mmseg_margin.errors import SettingError

from .backend import make_plan
from .guards import first_derivative_only, uncompiled
from .labels import check_shapes, known_labels
from .terms import PerClass, Terms


def margin_calibration_loss(
    scores: Tensor,
    labels: Tensor,
    rho_0k: PerClass,
    rho_k0: PerClass,
    *,
    ignore_index: int = 255,
    reduction: str = 'mean',
    backend: str = 'auto',
    **settings,
) -> Tensor:
    """Margin-calibrated log-loss (Eq. 16) with a closed-form gradient.

    Args:
        scores: (N, K, ...), K >= 2, any floating type; computed in float32
            (float64 for float64), the gradient has the type of the scores.
        labels: (N, ...), integers in [0, K) or ``ignore_index``.
        rho_0k: Offsets of the background terms, (K,) or a number.
        rho_k0: Offsets of the foreground terms, (K,) or a number.
        ignore_index: Label of the pixels that are left out.
        reduction: ``'none'`` for (N, ...), ``'sum'``, or ``'mean'`` over the
            labelled pixels; 0 if there is none.
        backend: ``'compiled'``, ``'eager'``, or ``'auto'``: compiled where a
            compiler is present.
        **settings: Any of

            - ``form='paper'``: ``'paper'`` measures every class against the
              best other class, ``'target'`` the background classes against the
              label, ``'softmax'`` takes one logarithm for all of them,
              ``'jaccard'`` weights the probabilities by what they cost the
              IoU.
            - ``pos_weight=1``: Weight of the foreground term by the label's
              class, (K,), a number, or ``'num_classes'``.
            - ``neg_weight=1``: Weight of each class's background terms, (K,)
              or a number; the softmax and the Jaccard form have no such terms.
            - ``log_base=2``: Base of the logarithm, 2 in the paper, or
              ``'e'``.
            - ``focus=0``: How strongly the terms beyond their margin are
              played down; 0 in the paper.
            - ``levels=64``: Levels in which the Jaccard form counts errors.
            - ``log_share=0``: How much of the softmax form, with its
              ``pos_weight`` and ``focus``, the Jaccard form adds; or a
              function that tells, if it is another in every step.
            - ``tables=None``: Weights (2, K, L + 1) of the Jaccard form at the
              borders of L levels, or a function that makes them from the
              batch's error histograms (2, K, L), which are counted on some
              of the pixels where there are many. None for the weights of
              this batch alone: then it is Lovasz-softmax.

    Example:
        >>> from mmseg_margin.functional import margin_offsets
        >>> rho_0k, rho_k0 = margin_offsets([900, 100])
        >>> scores = torch.tensor([[2.0, 0.0]])
        >>> loss = margin_calibration_loss(
        ...     scores, torch.tensor([0]), rho_0k, rho_k0, backend='eager')
        >>> round(float(loss), 4)
        1.9135
    """
    check_reduction(reduction)
    share: Tensor | float = 1.0
    if reduction == 'mean':
        labelled = (labels != ignore_index).sum().clamp(min=1)
        share = 1 / labelled.to(torch.promote_types(scores.dtype, torch.float))
    pixel_loss = pixel_calibration_loss(
        scores,
        labels,
        rho_0k,
        rho_k0,
        pixel_weight=share,
        ignore_index=ignore_index,
        backend=backend,
        **settings,
    )
    return pixel_loss if reduction == 'none' else pixel_loss.sum()


def check_reduction(reduction: str) -> None:
    if reduction not in ('none', 'sum', 'mean'):
        raise SettingError(
            f"reduction={reduction!r} is not 'none', 'sum' or 'mean'."
        )


@uncompiled
def pixel_calibration_loss(
    scores: Tensor,
    labels: Tensor,
    rho_0k: PerClass,
    rho_k0: PerClass,
    *,
    pixel_weight: Tensor | float = 1.0,
    ignore_index: int = 255,
    backend: str = 'auto',
    **settings,
) -> Tensor:
    """The loss of every pixel, (N, ...), 0 where the label is ignored.

    It compiles its own kernel, so an enclosing ``torch.compile`` calls it as
    it is. Weights, one for all or (N, ...), cost nothing here: a gradient
    that has them already need not be multiplied by them afterwards. The
    settings are those of :func:`margin_calibration_loss`.
    """
    check_shapes(scores, labels)
    labels = known_labels(labels, scores.shape[1], ignore_index)
    shape = labels.shape
    if scores.dim() == 2:
        # One row of pixels instead of many images of one pixel.
        scores, labels = scores.t().unsqueeze(0), labels.unsqueeze(0)
    terms = Terms.make(scores, rho_0k, rho_k0, **settings)
    if terms.rules.form == 'jaccard':
        some: tuple = (...,)
        if scores.dim() == 4:
            some = (..., *[slice(None, None, terms.sample_step(labels))] * 2)
        sample = zip(scores.detach()[some], labels[some], strict=True)
        terms = terms.with_tables(sample)
    # A pixel's share is too small a number for a gradient of half precision,
    # until what AMP scales it by has been multiplied in.
    now, later = pixel_weight, None
    if torch.finfo(scores.dtype).bits < 32:
        now, later = 1.0, pixel_weight
    loss = PixelLoss.apply(scores, labels, now, terms, backend).view(shape)
    return loss if later is None else later * loss


class PixelLoss(torch.autograd.Function):
    """Per-pixel loss whose gradient was computed along with it."""

    @staticmethod
    def forward(ctx, scores, labels, pixel_weight, terms, backend):
        ctx.arguments = (pixel_weight, terms, backend)
        loss, ctx.gradient = run(scores, labels, *ctx.arguments)
        ctx.save_for_backward(scores, labels)
        return loss

    @staticmethod
    def backward(ctx, upstream):
        scores, labels = ctx.saved_tensors
        # The stored gradient is scaled in place and handed on; only a second
        # backward through a retained graph has to compute it again.
        gradient, ctx.gradient = ctx.gradient, None
        with torch.no_grad():
            if gradient is None:
                _, gradient = run(scores, labels, *ctx.arguments)
            if not _is_one(upstream):
                gradient.mul_(upstream.unsqueeze(1))
        return first_derivative_only(gradient, scores), None, None, None, None


def _is_one(upstream: Tensor) -> bool:
    """Whether it is 1 everywhere, as of a sum; a GPU is not waited for."""
    if upstream.device.type != 'cpu' or not upstream.numel():
        return False
    return not any(upstream.stride()) and float(upstream.view(-1)[0]) == 1


def run(
    scores: Tensor,
    labels: Tensor,
    pixel_weight: Tensor | float,
    terms: Terms,
    backend: str,
) -> tuple[Tensor, Tensor]:
    """Loss (N, ...) and gradient (N, K, ...) of scores and labels."""
    kernel, size = make_plan(terms.rules, scores, backend)
    flat_scores = scores.flatten(2)
    flat_labels = labels.unsqueeze(1).flatten(2)
    gradient = torch.empty_like(flat_scores)
    dtype = terms.classes.rho_0k.dtype
    loss = torch.empty_like(flat_labels, dtype=dtype)
    weight = (labels >= 0).to(dtype) * pixel_weight
    weight = weight.to(dtype).view_as(flat_labels)
    with torch.autocast(scores.device.type, enabled=False):
        for n in range(len(scores)):
            for start in range(0, flat_scores.shape[2], size):
                here = slice(start, start + size)
                result = kernel(
                    flat_scores[n, :, here].to(dtype).contiguous(),
                    flat_labels[n, :, here],
                    weight[n, :, here],
                    terms.classes,
                )
                loss[n, :, here] = result.loss
                gradient[n, :, here] = result.gradient
    return loss.view(labels.shape), gradient.view(scores.shape)
