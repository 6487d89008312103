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


class Strip(NamedTuple):
    """Rows of scores, and the rows of labels that they are up-sampled to."""

    source: slice
    target: slice
    scales: tuple[int, int]

    def upsample(self, image: Tensor) -> Tensor:
        """Rows of the image (1, K, h, w) at the size of their labels."""
        first, last = self.source.start, self.source.stop
        low, high = max(first - 1, 0), min(last + 1, image.shape[2])
        tall, wide = self.scales
        upsampled = F.interpolate(
            image[:, :, low:high],
            size=((high - low) * tall, image.shape[3] * wide),
            mode='bilinear',
            align_corners=False,
        )
        skipped = (first - low) * tall
        inner = slice(skipped, skipped + (last - first) * tall)
        return upsampled[:, :, inner].contiguous()

    def add_back(self, gradient: Tensor, of_strip: Tensor) -> None:
        """The transpose of :meth:`upsample`, onto (1, K, h, w)."""
        _, K, H, W = of_strip.shape
        tall, wide = self.scales
        rows, columns = H // tall, W // wide
        weights = [_weights(scale).to(of_strip) for scale in self.scales]
        # To the row above, to the own and to the row below; then likewise.
        back = weights[0].T @ of_strip.view(K, rows, tall, W)
        back = _overlap(back.movedim(2, 0))
        back = back.reshape(K, rows + 2, columns, wide) @ weights[1]
        back = _overlap(back.permute(3, 0, 2, 1)).transpose(1, 2)
        # What lies outside of the image falls on its border.
        back[..., 1] += back[..., 0]
        back[..., -2] += back[..., -1]
        back = back[..., 1:-1]
        first, last = self.source.start, self.source.stop
        if first == 0:
            back[:, 1] += back[:, 0]
        if last == gradient.shape[2]:
            back[:, -2] += back[:, -1]
        low, high = max(first - 1, 0), min(last + 1, gradient.shape[2])
        gradient[0, :, low:high] += back[:, low - first + 1 : high - first + 1]


class Image(NamedTuple):
    """A whole image, for the ratios that strips do not work with."""

    size: tuple[int, int]
    align_corners: bool
    target: slice = slice(None)

    def upsample(self, image: Tensor) -> Tensor:
        return F.interpolate(
            image,
            size=self.size,
            mode='bilinear',
            align_corners=self.align_corners,
        )

    def add_back(self, gradient: Tensor, of_image: Tensor) -> None:
        gradient += torch.ops.aten.upsample_bilinear2d_backward(
            of_image, self.size, gradient.shape, self.align_corners
        )


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
            for strip in strips:
                part = strip.upsample(scores[image].detach().to(dtype))
                here = labels[image, strip.target]
                hits += _hits(part, here, ignore_index)
                with torch.set_grad_enabled(needs_gradient):
                    part.requires_grad_(needs_gradient)
                    losses = pixel_losses(part, here)
                    if weight is not None:
                        losses = losses * weight[image, strip.target]
                    total = losses.sum()
                if needs_gradient:
                    (back,) = torch.autograd.grad(total, part)
                    strip.add_back(gradient[image], back)
                loss += total.detach()
        ctx.gradient = gradient.to(scores.dtype)
        ctx.mark_non_differentiable(hits)
        return loss, hits

    @staticmethod
    @once_differentiable
    def backward(ctx, upstream, _):
        gradient = ctx.gradient * upstream.to(ctx.gradient.dtype)
        return gradient, None, None, None, None, None


def _hits(scores: Tensor, labels: Tensor, ignore_index: int) -> Tensor:
    """How many labels have no better class, which is quicker than argmax."""
    labelled = labels != ignore_index
    known = torch.where(labelled, labels, 0).unsqueeze(1)
    is_top = scores.gather(1, known)[:, 0] == scores.amax(1)
    return (is_top & labelled).sum()


def _weights(scale: int) -> Tensor:
    """How much each of the pixels takes from before, here and after."""
    place = (torch.arange(scale) + 0.5) / scale - 0.5
    before, after = (-place).clamp(min=0), place.clamp(min=0)
    return torch.stack([before, 1 - before - after, after], 1)


def _overlap(parts: Tensor) -> Tensor:
    """Sum of what goes before, here and after: (3, K, n, m) to n + 2."""
    _, K, n, m = parts.shape
    total = parts.new_zeros(K, n + 2, m)
    for offset, part in enumerate(parts):
        total[:, offset : offset + n] += part
    return total


def _strips(
    scores: torch.Size, labels: torch.Size, align_corners: bool
) -> Iterator[Strip | Image]:
    num_classes, h, w = scores[1:]
    H, W = labels[1:]
    if align_corners or H % h or W % w:
        yield Image((H, W), align_corners)
        return
    scales = H // h, W // w
    rows = max(STRIP_SCORES // (num_classes * scales[0] * W), 1)
    for first in range(0, h, rows):
        last = min(first + rows, h)
        yield Strip(
            slice(first, last),
            slice(first * scales[0], last * scales[0]),
            scales,
        )
