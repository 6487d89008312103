"""Scores at the resolution of the labels, one piece at a time.

A *source* yields all pixels in pieces that fit into the cache, or a sample of
them, and takes the gradient of each piece back to the original resolution.

Bilinear up-sampling by a whole scale s works by *phases*: every s-th pixel of
a row lies at the same fraction between its two low-resolution neighbours. So
a phase is an interpolation between the low-resolution row and the same row
shifted by one, and the transpose splits its gradient by the same fraction.
That is exact, needs no indexing, and computes nothing twice at the border of
two pieces. The pixels' losses are summed, so their order does not matter.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .backend import Pixels

# An image with fewer scores stays in the cache at full size, so a few large
# operators cost less than many small ones.
SMALL_IMAGE = 2**18
# Some pixels, and a function that takes their gradient (K, P).
Piece = tuple[Pixels, Callable[[Tensor], object]]
# The number of an image, and scores (K, P) and labels (1, P) of some pixels.
Sample = Iterator[tuple[int, Tensor, Tensor]]


class Axis(NamedTuple):
    """The phases along a dimension of the scores, which are padded by one."""

    dim: int  # -2 for rows, -1 for columns
    # For each phase, the shift of the first neighbour in the padded scores,
    # and the fraction of the second neighbour.
    taps: tuple[tuple[int, float], ...]

    @staticmethod
    def of(dim: int, low: int, high: int, corners: bool) -> 'Axis | None':
        """Pixels placed as by ``F.interpolate``; None if not a whole scale."""
        steps = (high - 1, low - 1) if corners else (high, low)
        if steps[1] < 1 or steps[0] < 1 or steps[0] % steps[1]:
            return None
        scale = steps[0] // steps[1]
        shift = 0.0 if corners else 0.5 / scale - 0.5
        places = [phase / scale + shift for phase in range(scale)]
        return Axis(
            dim, tuple((math.floor(x) + 1, x - math.floor(x)) for x in places)
        )

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

    def interpolate(
        self, x: Tensor, phase: int, places: slice, out: Tensor | None = None
    ) -> Tensor:
        """The pixels of a phase at some places of the scores x."""
        return torch.lerp(*self.neighbours(x, phase, places), out=out)

    def gather(self, phases: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """Shifts and fractions of the taps of some pixels, (P,)."""
        shifts, fractions = zip(*self.taps, strict=True)
        return torch.tensor(shifts)[phases], like.new_tensor(fractions)[phases]

    def every(self, step: int, size: int) -> Iterator[tuple[int, slice]]:
        """Every ``step``-th pixel: a phase, and its places among ``size``."""
        period = math.lcm(self.scale, step)
        for pixel in range(0, period, step):
            place, phase = divmod(pixel, self.scale)
            yield phase, slice(place, size, period // self.scale)


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
        scores = scores.to(weight.dtype)
        self.scores = F.pad(scores, (1, 1, 1, 1), mode='replicate')
        self.image_labels = labels
        self.labels = self._arrange(labels, -1)
        self.weight = self._arrange(weight.expand_as(labels), 0)
        self.image_size = tuple(labels.shape[1:])

    def _arrange(self, pixels: Tensor, outside: float) -> Tensor:
        """(N, H, W) to (N, vertical phase, horizontal phase, h, w)."""
        N, _, h, w = self.shape
        down, right = self.rows.scale, self.columns.scale
        H, W = pixels.shape[1:]
        missing = (0, right * w - W, 0, down * h - H)
        if any(missing):
            pixels = F.pad(pixels, missing, value=outside)
        return pixels.view(N, h, down, w, right).permute(0, 2, 4, 1, 3)

    def sample(self, step: int) -> Sample:
        """Every ``step``-th row and column of each image."""
        N, _, h, w = self.shape
        for image, (i, rows), (j, columns) in itertools.product(
            range(N), self.rows.every(step, h), self.columns.every(step, w)
        ):
            scores = self.rows.interpolate(self.scores[image], i, rows)
            scores = self.columns.interpolate(scores, j, columns)
            labels = self.labels[image, i, j, rows, columns]
            yield image, scores.flatten(1), labels.reshape(1, -1)

    def gather(self, image: int, at: tuple[Tensor, ...]) -> Tensor:
        """Scores (K, P) at an index of the labels of an image."""
        i, j, y, x = at
        top, down = self.rows.gather(i, self.scores)
        left, right = self.columns.gather(j, self.scores)
        y, x = y + top, x + left
        scores = self.scores[image]
        near, far = (
            scores[:, y + below, x].lerp(scores[:, y + below, x + 1], right)
            for below in (0, 1)
        )
        return near.lerp(far, down)

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
            yield (
                Pixels(
                    self._up(image, phase, rows).view(K, -1),
                    self.labels[here].reshape(1, -1),
                    self.weight[here].reshape(1, -1),
                ),
                functools.partial(self._down, image, phase, rows),
            )

    def _up(self, image: int, phase: int, rows: slice) -> Tensor:
        """The up-sampled scores, (K, horizontal phase, rows, w)."""
        source = self.rows.interpolate(self.scores[image], phase, rows)
        (K, size, _), w = source.shape, self.shape[3]
        result = source.new_empty(K, self.columns.scale, size, w)
        for j in range(self.columns.scale):
            self.columns.interpolate(source, j, slice(0, w), out=result[:, j])
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
    """One image at a time, up-sampled to its labels unless it is full-size.

    Scores are (N, K, ...), labels (N, ...); ``corners`` is None at full size.
    """

    def __init__(
        self,
        scores: Tensor,
        labels: Tensor,
        weight: Tensor,
        corners: bool | None,
    ) -> None:
        self.scores, self.corners = scores, corners
        self.labels = self.image_labels = labels
        self.weight = weight.expand_as(labels)
        self.image_size = tuple(labels.shape[1:])

    def _up(self, n: int) -> Tensor:
        if self.corners is None:
            return self.scores[n]
        scores = self.scores[n : n + 1].to(self.weight.dtype)
        return torch.ops.aten.upsample_bilinear2d(
            scores, self.image_size, self.corners
        )[0]

    def _down(self, gradient: Tensor) -> Tensor:
        """The gradient (K, P) of :meth:`_up`, at the size of the scores."""
        return torch.ops.aten.upsample_bilinear2d_backward(
            gradient.view(1, -1, *self.image_size),
            self.image_size,
            [1, *self.scores.shape[1:]],
            self.corners,
        )[0]

    def sample(self, step: int) -> Sample:
        """Every ``step``-th row and column of each image."""
        some: Any = (..., *[slice(None, None, step)] * len(self.image_size))
        for n in range(len(self.scores)):
            scores, labels = self._up(n)[some], self.labels[n][some]
            yield n, scores.flatten(1), labels.reshape(1, -1)

    def gather(self, image: int, at: tuple[Tensor, ...]) -> Tensor:
        """Scores (K, P) at an index of the labels of an image."""
        where: Any = (slice(None), *at)
        return self._up(image)[where]

    def pieces(self, pixels: int) -> Iterator[Piece]:
        """All pixels, at most ``pixels`` at a time."""
        dtype = self.weight.dtype
        # Flat, so that the gradient has the memory layout of the scores.
        self._gradient = torch.empty_like(self.scores.flatten(2), dtype=dtype)
        for n in range(len(self.scores)):
            scores = self._up(n).flatten(1)
            gradient = self._gradient[n]
            if self.corners is not None:
                gradient = torch.empty_like(scores)
            labels, weight = (
                x[n].reshape(1, -1) for x in (self.labels, self.weight)
            )
            for start in range(0, scores.shape[1], pixels):
                here = (slice(None), slice(start, start + pixels))
                piece = scores[here].to(dtype).contiguous()
                yield (
                    Pixels(piece, labels[here], weight[here]),
                    gradient[here].copy_,
                )
            if self.corners is not None:
                self._gradient[n] = self._down(gradient).flatten(1)

    def gradient(self) -> Tensor:
        """The gradient of all pieces, (N, K, ...)."""
        return self._gradient.view(self.scores.shape)


def make_source(
    scores: Tensor, labels: Tensor, weight: Tensor, corners: bool | None
) -> Phases | Images:
    """Scores (N, K, ...) at the pixels of labels and weight (N, ...).

    ``corners`` is None for full-size scores; the pixels have the weight's
    type.
    """
    small = scores.shape[1] * labels[0].numel() < SMALL_IMAGE
    if corners is None or small:
        return Images(scores, labels, weight, corners)
    rows, columns = (
        Axis.of(dim, scores.shape[dim], labels.shape[dim], corners)
        for dim in (-2, -1)
    )
    if rows is None or columns is None:
        return Images(scores, labels, weight, corners)
    return Phases(scores, labels, weight, rows, columns)
