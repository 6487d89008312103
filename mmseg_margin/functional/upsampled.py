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
from .labels import check_shapes, known_labels
from .loss import HISTOGRAM_STRIDE, check_reduction, margin_calibration_loss
from .once import first_derivative_only
from .terms import PerClass, Terms
from .uncompiled import uncompiled
from .upsampling import Axis, Phases, upsampled_sample


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
    if reduction == 'none':
        scores = F.interpolate(
            low_scores,
            size=labels.shape[1:],
            mode='bilinear',
            align_corners=align_corners,
        )
        return margin_calibration_loss(
            scores,
            labels,
            rho_0k,
            rho_k0,
            ignore_index=ignore_index,
            reduction='none',
            backend=backend,
            **settings,
        )
    loss = upsampled_stage(
        low_scores,
        labels,
        rho_0k,
        rho_k0,
        align_corners=align_corners,
        ignore_index=ignore_index,
        backend=backend,
        **settings,
    ).loss
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
    if terms.rules.form == 'jaccard':
        step = 1 if terms.tables is None else HISTOGRAM_STRIDE
        terms = terms.with_tables(
            *upsampled_sample(low_scores, labels, step, align_corners)
        )
    terms = terms._replace(rules=terms.rules._replace(count_hits=True))
    loss, hits = Stage.apply(
        low_scores, labels, pixel_weight, terms, backend, align_corners
    )
    return StageResult(loss, hits, terms.histograms)


class Stage(torch.autograd.Function):
    """The sum of the losses, whose gradient was computed along with it."""

    @staticmethod
    def forward(ctx, scores, labels, weight, terms, backend, align_corners):
        dtype = terms.classes.rho_0k.dtype
        labelled = (labels >= 0).to(dtype)
        weight = labelled if weight is None else labelled * weight.to(dtype)
        rows, columns = (
            Axis.of(low, high, align_corners)
            for low, high in zip(
                scores.shape[2:], labels.shape[1:], strict=True
            )
        )
        with torch.autocast(scores.device.type, enabled=False):
            arguments = (scores.to(dtype), labels, weight, terms, backend)
            if rows is None or columns is None:
                whole = _by_images(*arguments, align_corners)
            else:
                whole = _by_phases(*arguments, rows, columns)
        loss, hits, gradient = whole
        ctx.save_for_backward(scores, gradient)
        ctx.mark_non_differentiable(hits)
        return loss, hits

    @staticmethod
    def backward(ctx, upstream, _):
        scores, gradient = ctx.saved_tensors
        with torch.no_grad():
            gradient = (gradient * upstream).to(scores.dtype)
        return first_derivative_only(gradient, scores), *[None] * 5


def _by_phases(
    low: Tensor,
    labels: Tensor,
    weight: Tensor,
    terms: Terms,
    backend: str,
    rows: Axis,
    columns: Axis,
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, hits and gradient, a tile at a time."""
    K = low.shape[1]
    kernel, pixels = make_plan(terms.rules, low, backend)
    phases = Phases(low, rows, columns)
    labels, weight = phases.arrange(labels, -1), phases.arrange(weight, 0)
    loss, hits = low.new_zeros(()), labels.new_zeros((), dtype=torch.long)
    for tile in phases.tiles(pixels):
        here = (tile.image, tile.phase, slice(None), tile.rows)
        scores = phases.up(tile)
        part = kernel(
            scores.view(K, -1),
            labels[here].reshape(1, -1),
            weight[here].reshape(1, -1),
            terms.classes,
        )
        phases.down(tile, part.gradient.view(scores.shape))
        loss += part.loss.sum()
        hits += part.hits
    return loss, hits, phases.folded()


def _by_images(
    low: Tensor,
    labels: Tensor,
    weight: Tensor,
    terms: Terms,
    backend: str,
    align_corners: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The same for other ratios, whose images are up-sampled as a whole."""
    kernel, pixels = make_plan(terms.rules, low, backend)
    loss, hits = low.new_zeros(()), labels.new_zeros((), dtype=torch.long)
    gradient = torch.empty_like(low)
    size = list(labels.shape[1:])
    for n, image in enumerate(low.split(1)):
        scores = torch.ops.aten.upsample_bilinear2d(image, size, align_corners)
        back = torch.empty_like(scores)
        flat, flat_back = scores[0].flatten(1), back[0].flatten(1)
        for start in range(0, flat.shape[1], pixels):
            here = slice(start, start + pixels)
            part = kernel(
                flat[:, here].contiguous(),
                labels[n].reshape(1, -1)[:, here],
                weight[n].reshape(1, -1)[:, here],
                terms.classes,
            )
            flat_back[:, here] = part.gradient
            loss += part.loss.sum()
            hits += part.hits
        gradient[n] = torch.ops.aten.upsample_bilinear2d_backward(
            back, size, list(image.shape), align_corners
        )[0]
    return loss, hits, gradient
