"""Bilinear up-sampling, one piece at a time, and its transpose.

With a scale of s, every s-th pixel of a row lies at the same fraction between
its two low-resolution neighbours; these pixels are one *phase*. So a phase is
an interpolation between the low-resolution row and the same row shifted by
one, and the transpose splits its gradient by the same fraction. That is exact,
needs no indexing, and computes nothing twice at the border of two pieces. The
pixels' losses are summed, so the order of the pixels does not matter.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# An image with fewer scores stays in the cache at full size, so a few large
# operators cost less than many small ones.
SMALL_IMAGE = 2**18
# Scores (K, ...) and labels (...) of some pixels.
Sample = Iterator[tuple[Tensor, Tensor]]


class Piece(NamedTuple):
    """Scores of P pixels at the resolution of the labels.

    Args:
        scores: (K, P).
        labels: (1, P).
        weight: (1, P).
        write_gradient: Passes the gradient (K, P) back to the source.
    """

    scores: Tensor
    labels: Tensor
    weight: Tensor
    write_gradient: Callable[[Tensor], object]


class Axis(NamedTuple):
    """The phases along a dimension of the scores, which are padded by one.

    Args:
        dim: -2 for rows, -1 for columns.
        taps: For each phase, the shift of the first neighbour in the padded
            scores, and the fraction of the second neighbour.
    """

    dim: int
    taps: tuple[tuple[int, float], ...]

    @staticmethod
    def of(dim: int, low: int, high: int, corners: bool) -> 'Axis | None':
        """Pixels placed as by ``F.interpolate``; None if not a whole scale."""
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
        """Both neighbours of some pixels, and the fraction of the second."""
        first, fraction = self.taps[phase]
        near, far = (
            slice(places.start + by, places.stop + by, places.step)
            for by in (first, first + 1)
        )
        if self.dim == -1:
            return x[..., near], x[..., far], fraction
        return x[..., near, :], x[..., far, :], fraction

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
        weight: Tensor,
        rows: Axis,
        columns: Axis,
    ) -> None:
        self.rows, self.columns = rows, columns
        self.shape = scores.shape
        self.scores = F.pad(scores, (1, 1, 1, 1), mode='replicate')
        self.labels = self._arrange(labels, -1)
        self.weight = self._arrange(weight.expand_as(labels), 0)
        self.image_size = tuple(labels.shape[1:])

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
        """Every ``step``-th row and column of each image."""
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
        """All pixels, about ``pixels`` at a time."""
        N, K, h, w = self.shape
        self._gradient = torch.zeros_like(self.scores)
        size = max(1, round(pixels / (w * self.columns.scale)))
        for image, top, phase in itertools.product(
            range(N), range(0, h, size), range(self.rows.scale)
        ):
            rows = slice(top, min(top + size, h))
            here = (image, phase, slice(None), rows)
            yield Piece(
                self._up(image, phase, rows).view(K, -1),
                self.labels[here].reshape(1, -1),
                self.weight[here].reshape(1, -1),
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
            pair = self.columns.neighbours(source, j, slice(0, w))
            torch.lerp(*pair, out=result[:, j])
        return result

    def _down(
        self, image: int, phase: int, rows: slice, gradient: Tensor
    ) -> None:
        """Add the gradient of :meth:`_up` to that of the scores."""
        near, far, of_far = self.rows.neighbours(
            self._gradient[image], phase, rows
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

    def gradient(self) -> Tensor:
        """The gradient of all pieces, (N, K, h, w)."""
        gradient = self._gradient
        # The padding repeats the outermost rows and columns.
        for dim in (2, 3):
            last = gradient.shape[dim] - 1
            for padding, inside in ((0, 1), (last, last - 1)):
                beyond = gradient.select(dim, padding)
                gradient.select(dim, inside).add_(beyond)
        return gradient[:, :, 1:-1, 1:-1]


class Images:
    """The same, one image at a time, for other ratios and small images."""

    def __init__(
        self, scores: Tensor, labels: Tensor, weight: Tensor, corners: bool
    ) -> None:
        self.scores, self.labels = scores, labels
        self.weight = weight.expand_as(labels)
        self.image_size, self.corners = tuple(labels.shape[1:]), corners

    def _up(self, n: int) -> Tensor:
        return torch.ops.aten.upsample_bilinear2d(
            self.scores[n : n + 1], self.image_size, self.corners
        )[0]

    def sample(self, step: int) -> Sample:
        """Every ``step``-th row and column of each image."""
        some = slice(None, None, step)
        for n in range(len(self.scores)):
            yield self._up(n)[:, some, some], self.labels[n, some, some]

    def pieces(self, pixels: int) -> Iterator[Piece]:
        """All pixels, at most ``pixels`` at a time."""
        self._gradient = torch.empty_like(self.scores)
        for n in range(len(self.scores)):
            scores = self._up(n).flatten(1)
            gradient = torch.empty_like(scores)
            labels, weight = (
                x[n].reshape(1, -1) for x in (self.labels, self.weight)
            )
            for start in range(0, scores.shape[1], pixels):
                here = (slice(None), slice(start, start + pixels))
                yield Piece(
                    scores[here].contiguous(),
                    labels[here],
                    weight[here],
                    gradient[here].copy_,
                )
            self._gradient[n] = torch.ops.aten.upsample_bilinear2d_backward(
                gradient.view(1, -1, *self.image_size),
                self.image_size,
                [1, *self.scores.shape[1:]],
                self.corners,
            )[0]

    def gradient(self) -> Tensor:
        """The gradient of all pieces, (N, K, h, w)."""
        return self._gradient


def upsampled(
    scores: Tensor, labels: Tensor, weight: Tensor, corners: bool
) -> Phases | Images:
    """Scores (N, K, h, w) at the pixels of labels and weight (N, H, W)."""
    rows, columns = (
        Axis.of(dim, scores.shape[dim], labels.shape[dim], corners)
        for dim in (-2, -1)
    )
    small = scores.shape[1] * labels[0].numel() < SMALL_IMAGE
    if rows is None or columns is None or small:
        return Images(scores, labels, weight, corners)
    return Phases(scores, labels, weight, rows, columns)
