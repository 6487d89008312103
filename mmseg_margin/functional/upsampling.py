"""Bilinear up-sampling by whole numbers, a phase at a time, and back.

Up-sampled s times, every s-th pixel of a row lies equally far between its two
neighbours: these pixels are one *phase*. So a phase is the low-resolution row
plus a share of the difference to itself shifted by one, and its gradient goes
back in the same two shares: vector instructions, without an index, exact, and
with nothing to be computed twice at the seams. A loss of pixels does not care
in which order they come.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Axis(NamedTuple):
    """Where each phase begins in the padded scores, and its second share."""

    scale: int
    taps: tuple[tuple[int, float], ...]

    @staticmethod
    def of(low: int, high: int, align_corners: bool) -> 'Axis | None':
        """As ``F.interpolate`` places pixels; None if they have no phases."""
        steps = (high - 1, low - 1) if align_corners else (high, low)
        if steps[1] < 1 or steps[0] < 1 or steps[0] % steps[1]:
            return None
        scale = steps[0] // steps[1]
        shift = 0.0 if align_corners else 0.5 / scale - 0.5
        taps = []
        for phase in range(scale):
            place = phase / scale + shift
            first = math.floor(place)
            taps.append((first + 1, place - first))
        return Axis(scale, tuple(taps))


class Tile(NamedTuple):
    """One vertical phase of some rows of an image."""

    image: int
    phase: int
    rows: slice


class Phases:
    """Scores (N, K, h, w), and a gradient of their size, by phases."""

    def __init__(self, scores: Tensor, rows: Axis, columns: Axis) -> None:
        self.rows, self.columns = rows, columns
        self.shape = scores.shape
        self.scores = F.pad(scores, (1, 1, 1, 1), mode='replicate')
        self.gradient = torch.zeros_like(self.scores)

    def tiles(self, pixels: int) -> Iterator[Tile]:
        """Tiles of about so many pixels."""
        N, _, h, w = self.shape
        size = max(1, pixels // (w * self.columns.scale))
        for image in range(N):
            for top in range(0, h, size):
                for phase in range(self.rows.scale):
                    rows = slice(top, min(top + size, h))
                    yield Tile(image, phase, rows)

    def arrange(self, pixels: Tensor, outside: float) -> Tensor:
        """(N, H, W) to (N, vertical phase, horizontal phase, h, w)."""
        N, _, h, w = self.shape
        down, right = self.rows.scale, self.columns.scale
        H, W = pixels.shape[1:]
        pixels = F.pad(
            pixels, (0, right * w - W, 0, down * h - H), value=outside
        )
        return pixels.view(N, h, down, w, right).permute(0, 2, 4, 1, 3)

    def up(self, tile: Tile) -> Tensor:
        """The up-sampled scores, (K, horizontal phase, rows, w)."""
        K, w = self.shape[1], self.shape[3]
        near, far, share = self._rows(self.scores, tile)
        source = torch.lerp(near, far, share)
        size = (K, self.columns.scale, source.shape[1], w)
        result = source.new_empty(size)
        for phase, (first, share) in enumerate(self.columns.taps):
            torch.lerp(
                source[..., first : first + w],
                source[..., first + 1 : first + 1 + w],
                share,
                out=result[:, phase],
            )
        return result

    def down(self, tile: Tile, gradient: Tensor) -> None:
        """Add the gradient of :meth:`up` to that of the scores."""
        w = self.shape[3]
        near, far, share = self._rows(self.gradient, tile)
        target = torch.zeros_like(near, memory_format=torch.contiguous_format)
        for phase, (first, weight) in enumerate(self.columns.taps):
            part = gradient[:, phase]
            target[..., first : first + w].add_(part, alpha=1 - weight)
            target[..., first + 1 : first + 1 + w].add_(part, alpha=weight)
        near.add_(target, alpha=1 - share)
        far.add_(target, alpha=share)

    def _rows(self, x: Tensor, tile: Tile) -> tuple[Tensor, Tensor, float]:
        first, share = self.rows.taps[tile.phase]
        top, bottom = tile.rows.start + first, tile.rows.stop + first
        image = x[tile.image]
        return image[:, top:bottom], image[:, top + 1 : bottom + 1], share

    def folded(self) -> Tensor:
        """The gradient without the padding, (N, K, h, w)."""
        gradient = self.gradient
        for dim in (2, 3):
            last = gradient.shape[dim] - 1
            for edge, inside in ((0, 1), (last, last - 1)):
                beyond = gradient.select(dim, edge)
                gradient.select(dim, inside).add_(beyond)
        return gradient[:, :, 1:-1, 1:-1]


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
