"""An objective over all pixels of a batch, with its gradient.

A *source* yields pieces of the scores, full-size or up-sampled; a kernel
computes loss, gradient and hits of a piece while it is in the cache; and the
source takes the gradient back to the original resolution of the scores.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from mmseg_margin.errors import SettingError

from .backend import (
    PixelKernel,
    Plan,
    choose_backend,
    make_plan,
    no_autocast,
    threads_of,
    uncompiled,
)
from .triton_launch import Planes, TritonResult, supports
from .upsampling import Piece, Sample, upsampled

REDUCTIONS = ('none', 'mean', 'sum')
IGNORED, INVALID = -1, -2


class Objective(Protocol):
    """What is computed for each pixel."""

    @property
    def name(self) -> str:
        """The key of the objective in :func:`.triton_check.proven`."""

    def kernel(self, num_classes: int) -> PixelKernel:
        """The kernel for K classes."""

    def constants(self, like: Tensor, source: Any) -> tuple:
        """What the kernel needs beside scores like (N, K, ...) and labels."""

    def triton_stage(
        self,
        scores: Tensor,
        labels: Tensor,
        weight: Tensor | None,
        ignore_index: int,
        pixel_loss: bool,
    ) -> TritonResult:
        """Loss, hits and gradient on a GPU, see :mod:`.triton_launch`."""


class StageResult(NamedTuple):
    """The results of a head's loss stage.

    Args:
        loss: Weight times loss, summed over the pixels or for each (N, ...).
        hits: Number of pixels whose label has the highest score.
        log_loss: Sum over the pixels of weight times cross-entropy, if the
            objective contains it.
    """

    loss: Tensor
    hits: Tensor
    log_loss: Tensor | None


def reduced_loss(
    scores: Tensor,
    labels: Tensor,
    objective: Objective,
    *,
    align_corners: bool | None = None,
    ignore_index: int = 255,
    reduction: str = 'mean',
    backend: str = 'auto',
) -> Tensor:
    """The loss of a batch, reduced over its pixels."""
    check_reduction(reduction)
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
    objective: Objective,
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
    if _use_triton(objective, scores, labels, bool(align_corners), backend):
        run = TritonRun(
            scores.detach(), labels, weight, objective, ignore_index, per_pixel
        )
        return StageResult(*_Stage.apply(scores, run))
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
        return StageResult(nothing, labels.sum(), None)
    shape = labels.shape
    if scores.dim() == 2:
        # One row of pixels instead of many images of one pixel.
        scores, labels = scores.t().unsqueeze(0), labels.unsqueeze(0)
    kernel = objective.kernel(scores.shape[1])
    plan = make_plan(kernel, scores, labels.numel(), backend)
    with no_autocast(scores.device), threads_of(plan):
        known = known_labels(labels, scores.shape[1], ignore_index)
        values = scores.detach()
        source: Any = (
            upsampled(values.to(dtype), known, weight, bool(align_corners))
            if upsample
            else FullSize(values, known, weight, dtype)
        )
        constants = objective.constants(values[:0].to(dtype), source)
        pieces = Run(source, plan, constants, per_pixel)
        loss, hits, log_loss = _Stage.apply(scores, pieces)
    return StageResult(loss.view(shape) if per_pixel else loss, hits, log_loss)


def _compute_dtype(scores: Tensor) -> torch.dtype:
    return torch.promote_types(scores.dtype, torch.float32)


class Run(NamedTuple):
    """A kernel to be run over the pieces of a source."""

    source: Any
    plan: Plan
    constants: tuple
    per_pixel: bool

    def __call__(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """Loss, hits, cross-entropy and gradient."""
        results = [
            self._run(piece) for piece in self.source.pieces(self.plan.pixels)
        ]
        loss, hits, log_loss = map(list, zip(*results, strict=True))
        return (
            torch.cat(loss, 1) if self.per_pixel else torch.stack(loss).sum(),
            torch.stack(hits).sum(),
            None if log_loss[0] is None else torch.stack(log_loss).sum(),
            self.source.gradient(),
        )

    def _run(self, piece: Piece) -> tuple[Tensor, Tensor, Tensor | None]:
        weight = (piece.labels >= 0).to(piece.scores.dtype)
        if weight.device.type != 'cpu':
            weight.masked_fill_(piece.labels == INVALID, torch.nan)
        weight *= piece.weight
        terms = self.plan.kernel(
            piece.scores, piece.labels, weight, self.constants
        )
        piece.write_gradient(terms.gradient)
        loss = terms.loss if self.per_pixel else terms.loss.sum()
        return loss, terms.hits, terms.log_loss

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
    objective: Objective
    ignore_index: int
    per_pixel: bool

    def __call__(self) -> tuple[Tensor, Tensor, Tensor | None, Planes]:
        """Loss, hits, cross-entropy, and the gradient in planes."""
        one_weight = not self.weight.dim()
        loss, ce, hits, planes, pixel_loss = self.objective.triton_stage(
            self.scores,
            self.labels,
            None if one_weight else self.weight,
            self.ignore_index,
            self.per_pixel,
        )
        if pixel_loss is not None:
            # An invalid label makes the sum NaN, so every pixel's loss too.
            loss = pixel_loss + (loss - loss)
        if one_weight:
            loss = loss * self.weight
            ce = None if ce is None else ce * self.weight
        return loss, hits, ce, planes

    def scale(self, planes: Planes, upstream: Tensor) -> Tensor:
        """The gradient times the upstream gradient."""
        if self.per_pixel:
            weighted = self._replace(weight=self.weight * upstream)
            return weighted()[-1].combine(self.weight.new_ones(()))
        if not self.weight.dim():
            upstream = upstream * self.weight
        return planes.combine(upstream)


def _use_triton(
    objective: Objective,
    scores: Tensor,
    labels: Tensor,
    align_corners: bool,
    backend: str,
) -> bool:
    """Whether the kernels support these scores and passed their check."""
    if choose_backend(scores.device, backend, 0) != 'triton':
        return False
    if not supports(scores, labels, align_corners):
        return False
    if backend == 'triton':
        return True
    from .triton_check import proven

    scale = labels.shape[1] // scores.shape[2]
    return proven(scores.device, scale, scores.dtype, (objective.name,))


class _Stage(torch.autograd.Function):
    """The loss of a batch, whose gradient was computed along with it."""

    @staticmethod
    def forward(ctx, scores, run):
        ctx.run = run
        loss, hits, log_loss, ctx.gradient = run()
        ctx.save_for_backward(scores)
        ctx.mark_non_differentiable(hits)
        if log_loss is not None:
            ctx.mark_non_differentiable(log_loss)
        return loss, hits, log_loss

    @staticmethod
    def backward(ctx, upstream, *_):
        (scores,) = ctx.saved_tensors
        # The stored gradient is scaled in place and handed on; only a second
        # backward through a retained graph has to compute it again.
        gradient, ctx.gradient = ctx.gradient, None
        with torch.no_grad():
            if gradient is None:
                gradient = ctx.run()[-1]
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


class FullSize:
    """Scores (N, K, ...) at the resolution of the labels (N, ...)."""

    def __init__(
        self,
        scores: Tensor,
        labels: Tensor,
        weight: Tensor,
        dtype: torch.dtype,
    ) -> None:
        self.scores, self.labels, self.dtype = scores, labels, dtype
        self.weight = weight.expand_as(labels)
        self.image_size = tuple(labels.shape[1:])

    def sample(self, step: int) -> Sample:
        """Every ``step``-th row and column of each image."""
        some = (..., *[slice(None, None, step)] * len(self.image_size))
        for scores, labels in zip(self.scores, self.labels, strict=True):
            yield scores[some], labels[some]

    def pieces(self, pixels: int) -> Iterator[Piece]:
        """All pixels, at most ``pixels`` at a time."""
        scores = self.scores.flatten(2)
        labels, weight = (
            x.unsqueeze(1).flatten(2) for x in (self.labels, self.weight)
        )
        gradient = torch.empty_like(scores, dtype=self.dtype)
        self._gradient = gradient.view(self.scores.shape)
        for n in range(len(scores)):
            for start in range(0, scores.shape[2], pixels):
                here = (n, slice(None), slice(start, start + pixels))
                yield Piece(
                    scores[here].to(self.dtype).contiguous(),
                    labels[here],
                    weight[here],
                    gradient[here].copy_,
                )

    def gradient(self) -> Tensor:
        """The gradient of all pieces, (N, K, ...)."""
        return self._gradient


def check_reduction(reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise SettingError(
            f'reduction={reduction!r} is not one of {REDUCTIONS}.'
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
            f'{tuple(scores.shape)} and {tuple(labels.shape)}.'
        )
    if weight.dim() and weight.shape != labels.shape:
        raise SettingError(
            'A weight must be one number, or one for each pixel like the '
            f'labels {tuple(labels.shape)}, got {tuple(weight.shape)}.'
        )
    if scores.shape[1] < 2:
        raise SettingError(
            'The loss needs at least two classes, got scores of one channel: '
            'set out_channels=2 (and num_classes=2) in the head.'
        )


def as_index(labels: Tensor) -> Tensor:
    """Labels in a type that can be compared with any ignore_index."""
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
