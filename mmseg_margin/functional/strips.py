"""The loss of up-sampled scores without the up-sampled scores.

A strip of rows is up-sampled together with one row of halo on each side, which
is all that bilinear up-sampling by a whole number looks at; its loss and hits
are computed while it is in the cache, and its gradient is brought back to the
rows it came from. Other ratios and ``align_corners=True`` go image by image.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

# Scores (1, K, H, W) and labels (1, H, W) to losses (1, H, W).
PixelLosses = Callable[[Tensor, Tensor], Tensor]
# Up-sampled scores of a strip: few enough for the cache, enough to outweigh
# the cost of a call.
STRIP_SCORES = 1 << 20
# Strips begin at multiples of it, so that every fourth row is found in each.
STRIP_ROWS = 4


class Strip(NamedTuple):
    """Rows of scores, with halo and without, and their rows of labels."""

    source: slice
    inner: slice
    target: slice
    size: tuple[int, int]


class StageResult(NamedTuple):
    """Weighted sum of the losses, and how many labels have the top score."""

    loss: Tensor
    hits: Tensor


@torch.compiler.disable
def upsampled_stage(
    low_scores: Tensor,
    labels: Tensor,
    pixel_losses: PixelLosses,
    *,
    pixel_weight: Tensor | None = None,
    ignore_index: int = 255,
    align_corners: bool = False,
) -> StageResult:
    """Loss and hits of scores (N, K, h, w) at the labels' size (N, H, W).

    Args:
        low_scores: (N, K, h, w).
        labels: (N, H, W).
        pixel_losses: What the pixels of a strip cost.
        pixel_weight: (N, H, W); 1 if None.
        ignore_index: The label that is no hit.
        align_corners: As in ``torch.nn.functional.interpolate``.
    """
    return StageResult(
        *Stage.apply(
            low_scores,
            labels,
            pixel_losses,
            pixel_weight,
            ignore_index,
            align_corners,
        )
    )


def upsampled_sample(
    low_scores: Tensor, labels: Tensor, step: int, align_corners: bool = False
) -> tuple[Tensor, Tensor]:
    """Up-sampled scores and labels at every so-manieth row and column.

    Shapes (N, K, h, w) and (N, H, W) to those of ``scores[..., ::step,
    ::step]`` and ``labels[..., ::step, ::step]``.
    """
    scores = low_scores.detach()
    for dim, size in zip((2, 3), labels.shape[1:], strict=True):
        old = scores.shape[dim]
        place = torch.arange(
            0, size, step, dtype=torch.float64, device=scores.device
        )
        # As F.interpolate places the pixels.
        if align_corners:
            place = place * ((old - 1) / max(size - 1, 1))
        else:
            place = ((place + 0.5) * (old / size) - 0.5).clamp(min=0)
        first = place.long().clamp(max=old - 1)
        second = (first + 1).clamp(max=old - 1)
        share = (place - first).to(scores.dtype)
        share = share.view((-1, 1) if dim == 2 else (-1,))
        scores = torch.lerp(
            scores.index_select(dim, first),
            scores.index_select(dim, second),
            share,
        )
    return scores, labels[:, ::step, ::step]


class Stage(torch.autograd.Function):
    """Sum over the strips, whose gradients were computed along with it."""

    @staticmethod
    def forward(
        ctx, scores, labels, pixel_losses, weight, ignore_index, align_corners
    ):
        needs_gradient = scores.requires_grad
        dtype = torch.promote_types(scores.dtype, torch.float32)
        gradient = torch.zeros_like(scores, dtype=dtype)
        loss = torch.zeros((), dtype=dtype, device=scores.device)
        hits = torch.zeros((), dtype=torch.long, device=scores.device)
        strips = list(_strips(scores.shape, labels.shape, align_corners))
        for n in range(len(scores)):
            image = slice(n, n + 1)
            for source, inner, target, size in strips:
                here = labels[image, target]
                with torch.set_grad_enabled(needs_gradient):
                    part = scores[image, :, source].detach().to(dtype)
                    part.requires_grad_(needs_gradient)
                    upsampled = F.interpolate(
                        part,
                        size=size,
                        mode='bilinear',
                        align_corners=align_corners,
                    )[:, :, inner]
                    losses = pixel_losses(upsampled, here)
                    if weight is not None:
                        losses = losses * weight[image, target]
                    total = losses.sum()
                if needs_gradient:
                    (back,) = torch.autograd.grad(total, part)
                    gradient[image, :, source] += back
                loss += total.detach()
                hit = upsampled.detach().argmax(1) == here
                hits += (hit & (here != ignore_index)).sum()
        ctx.gradient = gradient.to(scores.dtype)
        ctx.mark_non_differentiable(hits)
        return loss, hits

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream, _):
        gradient = ctx.gradient * upstream.to(ctx.gradient.dtype)
        return gradient, None, None, None, None, None


def _strips(
    scores: torch.Size, labels: torch.Size, align_corners: bool
) -> Iterator[Strip]:
    num_classes, h = scores[1:3]
    H, W = labels[1:]
    scale, rest = divmod(H, h)
    if rest or align_corners:
        whole = slice(None)
        yield Strip(whole, whole, whole, (H, W))
        return
    rows = STRIP_SCORES // (num_classes * scale * W)
    rows = max(rows // STRIP_ROWS, 1) * STRIP_ROWS
    for first in range(0, h, rows):
        last = min(first + rows, h)
        low, high = max(first - 1, 0), min(last + 1, h)
        skipped = (first - low) * scale
        yield Strip(
            slice(low, high),
            slice(skipped, skipped + (last - first) * scale),
            slice(first * scale, last * scale),
            ((high - low) * scale, W),
        )
