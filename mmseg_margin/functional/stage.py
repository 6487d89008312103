"""An objective over all pixels of a batch, with its gradient.

A source (see :mod:`.upsampling`) yields pieces of the scores, full-size or
up-sampled; a kernel computes loss, gradient and hits of a piece while it is in
the cache; and the source takes the gradient back to the original resolution.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mmseg_margin.errors import SettingError, one_of, require

from .backend import (
    Kernel,
    PixelObjective,
    Pixels,
    StageResult,
    choose_backend,
    choose_kernel,
    choose_without_triton,
    class_numbers,
    no_autocast,
    uncompiled,
)
from .triton_launch import Planes, supports
from .upsampling import Images, Phases, Piece, make_source

REDUCTIONS = ('none', 'mean', 'sum')
IGNORED, INVALID = -1, -2


def reduced_loss(
    scores: Tensor,
    labels: Tensor,
    objective: PixelObjective,
    *,
    align_corners: bool | None = None,
    ignore_index: int = 255,
    reduction: str = 'mean',
    backend: str = 'auto',
) -> Tensor:
    """The loss of a batch, reduced over its pixels."""
    require('reduction', reduction, *one_of(REDUCTIONS))
    labels = as_index(labels)
    weight: Tensor | float = 1.0
    if reduction == 'mean':
        labelled = (labels != ignore_index).sum().clamp(min=1)
        weight = 1 / labelled.to(_compute_dtype(scores))
    return run_stage(
        scores,
        labels,
        objective,
        pixel_weight=weight,
        align_corners=align_corners,
        ignore_index=ignore_index,
        per_pixel=reduction == 'none',
        backend=backend,
    ).loss


@uncompiled
def run_stage(
    scores: Tensor,
    labels: Tensor,
    objective: PixelObjective,
    *,
    pixel_weight: Tensor | float = 1.0,
    align_corners: bool | None = None,
    ignore_index: int = 255,
    per_pixel: bool = False,
    backend: str = 'auto',
) -> StageResult:
    """Loss, hits and gradient of a batch.

    It compiles its own kernels, so an enclosing ``torch.compile`` does not
    trace it.

    Args:
        scores: (N, K, ...), or (N, K, h, w) to be up-sampled.
        labels: (N, ...), integers in [0, K) or ``ignore_index``.
        objective: What is computed for each pixel.
        pixel_weight: One weight for all pixels, or (N, ...) like the labels.
        align_corners: As in ``F.interpolate``, to up-sample the scores to
            the labels; None for full-size scores.
        ignore_index: Label of the pixels that are left out.
        per_pixel: Whether to return the loss of each pixel, not their sum.
        backend: ``'auto'``, ``'triton'``, ``'compiled'`` or ``'eager'``.
    """
    upsample = align_corners is not None and (
        scores.shape[2:] != labels.shape[1:]
    )
    dtype = _compute_dtype(scores)
    weight = torch.as_tensor(pixel_weight, device=scores.device).to(dtype)
    check_shapes(scores, labels, weight, upsample)
    backend = _pick_backend(
        objective, scores, labels, bool(align_corners), backend
    )
    if backend == 'triton':
        launches = TritonRun(
            scores.detach(), labels, weight, objective, ignore_index, per_pixel
        )
        return StageResult(*_Stage.apply(scores, launches))
    labels = as_index(labels)
    if upsample and (per_pixel or scores.device.type != 'cpu'):
        # A loop over pieces would be hundreds of launches on a GPU.
        scores = F.interpolate(
            scores,
            size=labels.shape[1:],
            mode='bilinear',
            align_corners=align_corners,
        )
        upsample = False
    if not labels.numel():
        nothing = scores.sum(1) if per_pixel else scores.sum()
        return StageResult(nothing, labels.sum())
    shape = labels.shape
    if scores.dim() == 2:
        # One row of pixels instead of many images of one pixel.
        scores, labels = scores.t().unsqueeze(0), labels.unsqueeze(0)
    kernel, size = choose_kernel(objective, scores, backend)
    with no_autocast(scores.device):
        known = known_labels(labels, scores.shape[1], ignore_index)
        values = scores.detach()
        corners = align_corners if upsample else None
        source = make_source(values, known, weight, corners)
        like = values[:0].to(dtype)
        constants = class_numbers(like), *objective.constants(like, source)
        run = PieceRun(source, kernel, size, constants, per_pixel)
        result = StageResult(*_Stage.apply(scores, run))
    if per_pixel:
        return result._replace(loss=result.loss.view(shape))
    return result


def _compute_dtype(scores: Tensor) -> torch.dtype:
    return torch.promote_types(scores.dtype, torch.float32)


class PieceRun(NamedTuple):
    """A kernel to be run over the pieces of a source."""

    source: Phases | Images
    kernel: Kernel
    size: int  # pixels at once
    constants: tuple
    per_pixel: bool

    def __call__(self) -> StageResult:
        results = [self._run(piece) for piece in self.source.pieces(self.size)]
        loss = [result.loss for result in results]
        ce = [result.ce for result in results if result.ce is not None]
        return StageResult(
            torch.cat(loss, 1) if self.per_pixel else torch.stack(loss).sum(),
            torch.stack([result.hits for result in results]).sum(),
            self.source.gradient(),
            torch.stack(ce).sum() if ce else None,
            results[0].jaccard,
        )

    def _run(self, piece: Piece) -> StageResult:
        (scores, labels, weight), write_gradient = piece
        known = (labels >= 0).to(scores.dtype)
        if known.device.type != 'cpu':
            known.masked_fill_(labels == INVALID, torch.nan)
        pixels = Pixels(scores, labels, known.mul_(weight))
        result = self.kernel(pixels, self.constants)
        write_gradient(result.gradient)
        loss = result.loss if self.per_pixel else result.loss.sum()
        # What is not kept here is freed before the next piece.
        return result._replace(loss=loss, gradient=None, stored=())

    def scale(self, gradient: Tensor, upstream: Tensor) -> Tensor:
        """Multiply the gradient by the upstream gradient, in place."""
        if _is_one(upstream):
            return gradient
        if self.per_pixel:
            shape = (len(gradient), 1, *gradient.shape[2:])
            upstream = upstream.view(shape)
        return gradient.mul_(upstream)


class TritonRun(NamedTuple):
    """The same in a few launches on a GPU."""

    scores: Tensor
    labels: Tensor
    weight: Tensor
    objective: PixelObjective
    ignore_index: int
    per_pixel: bool

    def __call__(self) -> StageResult:
        one_weight = not self.weight.dim()
        result = self.objective.triton_stage(
            self.scores,
            self.labels,
            None if one_weight else self.weight,
            self.ignore_index,
            self.per_pixel,
        )
        if not one_weight:
            return result
        ce = None if result.ce is None else result.ce * self.weight
        return result._replace(loss=result.loss * self.weight, ce=ce)

    def scale(self, planes: Planes, upstream: Tensor) -> Tensor:
        """The gradient times the upstream gradient."""
        if self.per_pixel:
            weighted = self._replace(weight=self.weight * upstream)
            return weighted().gradient.combine(self.weight.new_ones(()))
        if not self.weight.dim():
            upstream = upstream * self.weight
        return planes.combine(upstream)


def _pick_backend(
    objective: PixelObjective,
    scores: Tensor,
    labels: Tensor,
    align_corners: bool,
    backend: str,
) -> str:
    """Triton, if its kernels support these scores and passed their check."""
    size = scores.shape[1] * labels.numel()
    chosen = choose_backend(scores.device, backend, size)
    if chosen != 'triton':
        return chosen
    if supports(scores, labels, align_corners):
        from .triton_check import kernels_match_reference

        scale = labels.shape[1] // scores.shape[2]
        if backend == 'triton' or kernels_match_reference(
            scores.device, scale, scores.dtype, (objective.name,)
        ):
            return 'triton'
    return choose_without_triton(scores.device, size)


class _Stage(torch.autograd.Function):
    """The loss of a batch, whose gradient was computed along with it."""

    @staticmethod
    def forward(ctx, scores, run):
        ctx.run = run
        loss, hits, ctx.gradient, *logged, _ = run()
        ctx.save_for_backward(scores)
        not_differentiable = [x for x in (hits, *logged) if x is not None]
        ctx.mark_non_differentiable(*not_differentiable)
        return loss, hits, None, *logged

    @staticmethod
    def backward(ctx, upstream, *_):
        (scores,) = ctx.saved_tensors
        # The stored gradient is scaled in place and handed on; only a second
        # backward through a retained graph has to compute it again.
        gradient, ctx.gradient = ctx.gradient, None
        with torch.no_grad():
            if gradient is None:
                gradient = ctx.run().gradient
            gradient = ctx.run.scale(gradient, upstream)
            # In float32 until here, because a pixel's weight may underflow,
            # and its loss overflow, in half precision.
            gradient = gradient.to(scores.dtype)
        return _FirstDerivativeOnly.apply(gradient, scores), None


def _is_one(upstream: Tensor) -> bool:
    """Whether it is 1 everywhere; False on a GPU, which is not waited for."""
    if upstream.device.type != 'cpu' or not upstream.numel():
        return False
    return not any(upstream.stride()) and float(upstream.view(-1)[0]) == 1


class _FirstDerivativeOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gradient, source):
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx, upstream):
        raise RuntimeError(
            'This loss has its gradient in closed form and no second '
            'derivative: use reference_loss for that, or leave out '
            'create_graph=True.'
        )


def check_shapes(
    scores: Tensor, labels: Tensor, weight: Tensor, upsample: bool
) -> None:
    """Raise unless scores are (N, K, ...), labels and weight (N, ...)."""
    shape = (*scores.shape[:1], *scores.shape[2:])
    if scores.dim() < 2 or (
        labels.shape != shape
        if not upsample
        else (scores.dim(), labels.dim()) != (4, 3)
        or len(labels) != len(scores)
    ):
        raise SettingError(
            'scores must be (N, K, ...) and labels (N, ...), got '
            f'{tuple(scores.shape)} and {tuple(labels.shape)}; '
            'align_corners=False up-samples scores (N, K, h, w).'
        )
    if weight.dim() and weight.shape != labels.shape:
        raise SettingError(
            'A weight must be one number, or one for each pixel like the '
            f'labels {tuple(labels.shape)}, got {tuple(weight.shape)}.'
        )
    if scores.shape[1] < 2:
        raise SettingError(
            'The loss needs at least two classes, got scores s of one '
            'channel: pass torch.cat([torch.zeros_like(s), s], 1), or set '
            'num_classes=2 and out_channels=2 in a head of MMSegmentation.'
        )


def as_index(labels: Tensor) -> Tensor:
    """Labels in a type that can be compared with any ignore_index."""
    if not isinstance(labels, Tensor):
        raise SettingError(
            f'Labels are a tensor, got {type(labels).__name__}: call '
            'torch.as_tensor(labels).'
        )
    if labels.is_floating_point() or labels.is_complex():
        raise SettingError(
            f'Labels are integers, got {labels.dtype}: call labels.long().'
        )
    wide = labels.dtype in (torch.int64, torch.int32)
    return labels if wide else labels.long()


def known_labels(
    labels: Tensor, num_classes: int, ignore_index: int
) -> Tensor:
    """Labels in int32, IGNORED where they are ignored.

    A label that is neither a class nor ignored raises an error on the CPU. On
    a GPU, which is not waited for, it becomes INVALID and makes the loss NaN.
    """
    is_ignored = labels == ignore_index
    known = labels
    if labels.device.type == 'cpu':
        check_label_values(labels, num_classes, ignore_index)
    else:
        is_class = (labels >= 0) & (labels < num_classes)
        known = torch.where(is_class, labels, INVALID)
    return known.to(torch.int32, copy=True).masked_fill_(is_ignored, IGNORED)


def check_label_values(
    labels: Tensor, num_classes: int, ignore_index: int
) -> None:
    """Raise if a label is neither a class nor ignored."""
    if not labels.numel():
        return
    classes = labels.masked_fill(labels == ignore_index, 0)
    lowest, highest = classes.aminmax()
    if lowest >= 0 and highest < num_classes:
        return
    wrong = classes[(classes < 0) | (classes >= num_classes)]
    raise SettingError(
        f'Labels {wrong.unique().tolist()} lie outside [0, {num_classes}) '
        f'and are not ignore_index={ignore_index}: correct num_classes, map '
        'them in the data set (reduce_zero_label, label_map), or set '
        'ignore_index.'
    )
