"""Bilinear up-sampling a piece at a time, and the way back.

Up-sampled s times, every s-th pixel of a row lies equally far between its two
neighbours: these pixels are one *phase*. So a phase is the low-resolution row
plus a share of the difference to itself shifted by one, and its gradient goes
back in the same two shares: vector instructions, without an index, exact, and
with nothing to be computed twice at the seams. A loss of pixels does not care
in which order they come.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# Scores (K, ...) and labels (...) of some pixels.
Sample = Iterator[tuple[Tensor, Tensor]]


class Piece(NamedTuple):
    """Up-sampled scores (K, P), and what belongs to them, (1, P).

    Args:
        scores: (K, P).
        labels: (1, P).
        weight: (1, P), or None.
        give_back: Adds their gradient to that of the scores they came from.
    """

    scores: Tensor
    labels: Tensor
    weight: Tensor | None
    give_back: Callable[[Tensor], object]


class Axis(NamedTuple):
    """The phases along a dimension of the scores, which have a rim of one.

    Args:
        dim: -2 for rows, -1 for columns.
        taps: Of each phase, how far its first neighbours lie from the
            pixels without the rim, and the share of the second ones.
    """

    dim: int
    taps: tuple[tuple[int, float], ...]

    @staticmethod
    def of(dim: int, low: int, high: int, corners: bool) -> 'Axis | None':
        """As ``F.interpolate`` places pixels; None if they have no phases."""
        steps = (high - 1, low - 1) if corners else (high, low)
        if steps[1] < 1 or steps[0] < 1 or steps[0] % steps[1]:
            return None
        scale = steps[0] // steps[1]
        shift = 0.0 if corners else 0.5 / scale - 0.5
        taps = []
        for phase in range(scale):
            place = phase / scale + shift
            first = math.floor(place)
            taps.append((first + 1, place - first))
        return Axis(dim, tuple(taps))

    @property
    def scale(self) -> int:
        return len(self.taps)

    def neighbours(
        self, x: Tensor, phase: int, places: slice
    ) -> tuple[Tensor, Tensor, float]:
        """Both neighbours of some pixels, and the share of the second."""
        first, share = self.taps[phase]
        near, far = (
            slice(places.start + by, places.stop + by, places.step)
            for by in (first, first + 1)
        )
        if self.dim == -1:
            return x[..., near], x[..., far], share
        return x[..., near, :], x[..., far, :], share

    def every(self, step: int) -> Iterator[tuple[int, int, int]]:
        """The pixels 0, step, ... as phases with first place and stride."""
        period = math.lcm(self.scale, step)
        for pixel in range(0, period, step):
            yield pixel % self.scale, pixel // self.scale, period // self.scale


class Phases:
    """Scores (N, K, h, w), up-sampled by phases to labels (N, H, W)."""

    def __init__(
        self,
        scores: Tensor,
        labels: Tensor,
        weight: Tensor | None,
        rows: Axis,
        columns: Axis,
    ) -> None:
        self.rows, self.columns = rows, columns
        self.shape = scores.shape
        self.scores = F.pad(scores, (1, 1, 1, 1), mode='replicate')
        self.labels = self._arrange(labels, -1)
        self.weight = None if weight is None else self._arrange(weight, 0)

    def _arrange(self, pixels: Tensor, outside: float) -> Tensor:
        """(N, H, W) to (N, vertical phase, horizontal phase, h, w)."""
        N, _, h, w = self.shape
        down, right = self.rows.scale, self.columns.scale
        H, W = pixels.shape[1:]
        if (down * h, right * w) != (H, W):
            missing = (0, right * w - W, 0, down * h - H)
            pixels = F.pad(pixels, missing, value=outside)
        return pixels.view(N, h, down, w, right).permute(0, 2, 4, 1, 3)

    def sample(self, step: int) -> Sample:
        """The pixels of every so-manieth row and column."""
        N, _, h, w = self.shape
        for image, (i, top, down), (j, left, right) in itertools.product(
            range(N), self.rows.every(step), self.columns.every(step)
        ):
            rows = slice(top, h, down)
            scores = torch.lerp(
                *self.rows.neighbours(self.scores[image], i, rows)
            )
            columns = slice(left, w, right)
            scores = torch.lerp(*self.columns.neighbours(scores, j, columns))
            yield scores, self.labels[image, i, j, rows, columns]

    def pieces(self, pixels: int) -> Iterator[Piece]:
        """All pixels, about so many at a time."""
        N, K, h, w = self.shape
        self.gradient = torch.zeros_like(self.scores)
        size = max(1, round(pixels / (w * self.columns.scale)))
        for image, top, phase in itertools.product(
            range(N), range(0, h, size), range(self.rows.scale)
        ):
            rows = slice(top, min(top + size, h))
            here = (image, phase, slice(None), rows)
            weight = self.weight
            yield Piece(
                self._up(image, phase, rows).view(K, -1),
                self.labels[here].reshape(1, -1),
                None if weight is None else weight[here].reshape(1, -1),
                functools.partial(self._down, image, phase, rows),
            )

    def _up(self, image: int, phase: int, rows: slice) -> Tensor:
        """The up-sampled scores, (K, horizontal phase, rows, w)."""
        source = torch.lerp(
            *self.rows.neighbours(self.scores[image], phase, rows)
        )
        (K, size, _), w = source.shape, self.shape[3]
        result = source.new_empty(K, self.columns.scale, size, w)
        for j in range(self.columns.scale):
            near, far, share = self.columns.neighbours(source, j, slice(0, w))
            torch.lerp(near, far, share, out=result[:, j])
        return result

    def _down(
        self, image: int, phase: int, rows: slice, gradient: Tensor
    ) -> None:
        """Add the gradient of :meth:`_up` to that of the scores."""
        near, far, of_far = self.rows.neighbours(
            self.gradient[image], phase, rows
        )
        target = torch.zeros_like(near, memory_format=torch.contiguous_format)
        K, size, w = *target.shape[:2], self.shape[3]
        gradient = gradient.view(K, self.columns.scale, size, w)
        for j in range(self.columns.scale):
            left, right, of_right = self.columns.neighbours(
                target, j, slice(0, w)
            )
            left.add_(gradient[:, j], alpha=1 - of_right)
            right.add_(gradient[:, j], alpha=of_right)
        near.add_(target, alpha=1 - of_far)
        far.add_(target, alpha=of_far)

    def whole_gradient(self) -> Tensor:
        """The gradient of all pieces, (N, K, h, w)."""
        gradient = self.gradient
        # The rim repeats what lies inside.
        for dim in (2, 3):
            last = gradient.shape[dim] - 1
            for rim, inside in ((0, 1), (last, last - 1)):
                beyond = gradient.select(dim, rim)
                gradient.select(dim, inside).add_(beyond)
        return gradient[:, :, 1:-1, 1:-1]


class Images:
    """The same for other ratios, whose images are up-sampled as a whole."""

    def __init__(
        self,
        scores: Tensor,
        labels: Tensor,
        weight: Tensor | None,
        corners: bool,
    ) -> None:
        self.scores, self.labels, self.weight = scores, labels, weight
        self.size, self.corners = list(labels.shape[1:]), corners
        self.gradient = torch.empty_like(scores)

    def _up(self, n: int) -> Tensor:
        return torch.ops.aten.upsample_bilinear2d(
            self.scores[n : n + 1], self.size, self.corners
        )[0]

    def sample(self, step: int) -> Sample:
        some = slice(None, None, step)
        for n in range(len(self.scores)):
            yield self._up(n)[:, some, some], self.labels[n, some, some]

    def pieces(self, pixels: int) -> Iterator[Piece]:
        weight = self.weight
        for n in range(len(self.scores)):
            scores = self._up(n)
            gradient = torch.empty_like(scores)
            for start in range(0, scores[0].numel(), pixels):
                here = (slice(None), slice(start, start + pixels))
                yield Piece(
                    scores.flatten(1)[here].contiguous(),
                    self.labels[n].view(1, -1)[here],
                    None if weight is None else weight[n].view(1, -1)[here],
                    gradient.flatten(1)[here].copy_,
                )
            self.gradient[n] = torch.ops.aten.upsample_bilinear2d_backward(
                gradient[None],
                self.size,
                [1, *self.scores.shape[1:]],
                self.corners,
            )[0]

    def whole_gradient(self) -> Tensor:
        return self.gradient


def upsampled(
    scores: Tensor, labels: Tensor, weight: Tensor | None, corners: bool
) -> Phases | Images:
    """Scores (N, K, h, w) at the pixels of labels and weight (N, H, W)."""
    rows, columns = (
        Axis.of(dim, scores.shape[dim], labels.shape[dim], corners)
        for dim in (-2, -1)
    )
    if rows is None or columns is None:
        return Images(scores, labels, weight, corners)
    return Phases(scores, labels, weight, rows, columns)
