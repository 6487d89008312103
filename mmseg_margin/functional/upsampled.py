"""The loss of up-sampled scores without the up-sampled scores.

A few rows are up-sampled, their loss, gradient and hits are computed while
they are in the cache, and the gradient goes straight back to the resolution
that the scores came in.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .backend import make_plan
from .guards import first_derivative_only, uncompiled
from .labels import check_shapes, known_labels
from .loss import check_reduction, pixel_calibration_loss
from .terms import PerClass, Terms
from .upsampling import upsampled


class StageResult(NamedTuple):
    """What a training step needs to know of a head's scores.

    Args:
        loss: Sum over the pixels of weight times loss.
        hits: How many labels have the top score.
        histograms: The batch's errors (2, K, L), if the Jaccard form's
            tables were made of them.
    """

    loss: Tensor
    hits: Tensor
    histograms: Tensor | None


def upsampled_margin_loss(
    low_scores: Tensor,
    labels: Tensor,
    rho_0k: PerClass,
    rho_k0: PerClass,
    *,
    align_corners: bool = False,
    ignore_index: int = 255,
    reduction: str = 'mean',
    backend: str = 'auto',
    **settings,
) -> Tensor:
    """:func:`margin_calibration_loss` of bilinearly up-sampled scores.

    Args:
        low_scores: (N, K, h, w).
        labels: (N, H, W); the scores are up-sampled to their size.
        rho_0k: Offsets of the background terms, (K,) or a number.
        rho_k0: Offsets of the foreground terms, (K,) or a number.
        align_corners: As in ``torch.nn.functional.interpolate``.
        ignore_index: Label of the pixels that are left out.
        reduction: ``'sum'`` or ``'mean'``; ``'none'`` has to up-sample.
        backend: See :func:`margin_calibration_loss`, as for the rest.
        **settings: ``form``, ``log_base``, ...
    """
    check_reduction(reduction)
    settings.update(ignore_index=ignore_index, backend=backend)
    if reduction == 'none':
        scores = F.interpolate(
            low_scores,
            size=labels.shape[1:],
            mode='bilinear',
            align_corners=align_corners,
        )
        return pixel_calibration_loss(
            scores, labels, rho_0k, rho_k0, **settings
        )
    settings.update(align_corners=align_corners)
    loss = upsampled_stage(low_scores, labels, rho_0k, rho_k0, **settings).loss
    if reduction == 'sum':
        return loss
    return loss / (labels != ignore_index).sum().clamp(min=1)


@uncompiled
def upsampled_stage(
    low_scores: Tensor,
    labels: Tensor,
    rho_0k: PerClass,
    rho_k0: PerClass,
    *,
    pixel_weight: Tensor | None = None,
    align_corners: bool = False,
    ignore_index: int = 255,
    backend: str = 'auto',
    **settings,
) -> StageResult:
    """A head's whole loss stage, see :func:`upsampled_margin_loss`.

    Args:
        low_scores: (N, K, h, w).
        labels: (N, H, W).
        rho_0k: Offsets of the background terms, (K,) or a number.
        rho_k0: Offsets of the foreground terms, (K,) or a number.
        pixel_weight: (N, H, W); 1 if None.
        align_corners: As in ``torch.nn.functional.interpolate``.
        ignore_index: Label of the pixels that are left out.
        backend: See :func:`margin_calibration_loss`, as for the rest.
        **settings: ``form``, ``log_base``, ... Cross-entropy is the softmax
            form with no offsets and ``log_base='e'``.
    """
    check_shapes(low_scores[..., :1, :1], labels[..., :1, :1])
    labels = known_labels(labels, low_scores.shape[1], ignore_index)
    terms = Terms.make(low_scores, rho_0k, rho_k0, **settings)
    dtype = terms.classes.rho_0k.dtype
    with torch.autocast(low_scores.device.type, enabled=False):
        source = upsampled(
            low_scores.detach().to(dtype),
            labels,
            None if pixel_weight is None else pixel_weight.to(dtype),
            align_corners,
        )
        if terms.rules.form == 'jaccard':
            sample = source.sample(terms.sample_step(labels))
            terms = terms.with_tables(sample)
    terms = terms._replace(rules=terms.rules._replace(count_hits=True))
    loss, hits = Stage.apply(low_scores, source, terms, backend)
    return StageResult(loss, hits, terms.histograms)


class Stage(torch.autograd.Function):
    """The sum of the losses, whose gradient was computed along with it."""

    @staticmethod
    def forward(ctx, scores, source, terms, backend):
        loss = terms.classes.rho_0k.new_zeros(())
        hits = scores.new_zeros((), dtype=torch.long)
        kernel, pixels = make_plan(terms.rules, scores, backend)
        with torch.autocast(scores.device.type, enabled=False):
            for piece in source.pieces(pixels):
                weight = (piece.labels >= 0).to(loss.dtype)
                if piece.weight is not None:
                    weight *= piece.weight
                part = kernel(
                    piece.scores, piece.labels, weight, terms.classes
                )
                piece.give_back(part.gradient)
                loss += part.loss.sum()
                hits += part.hits
        ctx.save_for_backward(scores, source.whole_gradient())
        ctx.mark_non_differentiable(hits)
        return loss, hits

    @staticmethod
    def backward(ctx, upstream, _):
        scores, gradient = ctx.saved_tensors
        with torch.no_grad():
            gradient = (gradient * upstream).to(scores.dtype)
        return first_derivative_only(gradient, scores), None, None, None
