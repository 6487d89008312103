r"""Fitted offsets from scores and labels, with torch alone.

Coordinate ascent of mIoU, exact in each class offset: with the other offsets
fixed, pixel i goes to class k exactly if

.. math:: b_k > t_{ik} = \max_{j \ne k} (s_{ij} + b_j) - s_{ik},

the negative margin (Eq. 8) under the current offsets. A histogram of t, by the
class that the pixel would get without class k, therefore gives every class's
hits and predictions, and so mIoU, at every value of :math:`b_k` at once.

The ascent is run on each quarter of the images, and cross-validation over the
quarters shrinks the mean of the four results.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from mmseg_margin.errors import DataSetError, SettingError

# The offsets that are tried. A power of two makes the index of a threshold
# exact.
STEPS_PER_UNIT = 16
LIMIT = 4
GRID = torch.arange(-LIMIT * STEPS_PER_UNIT, LIMIT * STEPS_PER_UNIT + 1)
GRID = GRID / STEPS_PER_UNIT
SWEEPS = 4
PARTS = 4
FACTORS = (0.0, 0.25, 0.5, 0.75, 1.0)
# Scores (P, K), labels (P,) and the numbers of the images (P,).
PixelSample = tuple[Tensor, ...]


def fit_offsets(
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    ignore_index: int = 255,
    pixels_per_image: int = 2_000,
) -> Tensor:
    """Fit offsets that, added to the scores, raise mIoU.

    Of each image some pixels on a regular grid are kept, so the batches may
    come from a generator and need not be in memory together.

    Args:
        batches: Pairs of scores before the softmax, (N, K, H, W), and labels
            at the same resolution, (N, H, W).
        ignore_index: The label of pixels that do not count.
        pixels_per_image: At most as many pixels of each image are kept.

    Returns:
        (K,) in float32, to be added to the scores or to the bias of the last
        layer. Classes without a label keep 0.

    Example:
        >>> network = torch.nn.Conv2d(3, 5, 1).requires_grad_(False)
        >>> loader = [(torch.rand(2, 3, 8, 8), torch.ones(2, 8, 8))]
        >>> offsets = fit_offsets((network(x), y) for x, y in loader)
        >>> scores = network(loader[0][0]) + offsets[:, None, None]
    """
    pairs = (pair for batch in batches for pair in zip(*batch, strict=True))
    parts = [
        grid_pixels(number, scores.detach(), labels, pixels_per_image)
        for number, (scores, labels) in enumerate(pairs)
    ]
    scores, labels, images = map(torch.cat, zip(*parts, strict=True))
    kept = labels != ignore_index
    return fit_pixels((scores[kept], labels[kept], images[kept]))


def grid_pixels(
    number: int, scores: Tensor, labels: Tensor, most: int
) -> PixelSample:
    """At most ``most`` pixels of an image, on a regular grid, on the CPU.

    The image has a number, scores (K, H, W) and labels (H, W).
    """
    if scores.shape[1:] != labels.shape:
        raise SettingError(
            f'Scores {tuple(scores.shape)} and labels {tuple(labels.shape)} '
            'of an image have another size: up-sample the scores; in '
            'val_dataloader put LoadAnnotations after Resize.'
        )
    step = math.ceil(math.sqrt(labels.numel() / most))
    grid = slice(step // 2, None, step)
    chosen = labels[grid, grid].flatten()[:most].long().cpu()
    # Copied, because the network may write its next scores to the same place.
    values = scores[:, grid, grid].flatten(1)[:, :most].T
    values = values.to('cpu', torch.float32, copy=True)
    return values, chosen, torch.full_like(chosen, number)


def fit_pixels(sample: PixelSample) -> Tensor:
    """Fit offsets (K,) to labelled pixels.

    They are fitted on each quarter of the images, averaged, and multiplied
    by one factor out of 0, 0.25, ..., 1: the one that gives the best mIoU if
    each quarter is measured with the mean of the other three.
    """
    scores, labels, images = sample
    K = scores.shape[1]
    _check(scores, labels)
    parts = _random_parts(images)
    fitted = torch.stack(
        [Ascent(scores[part], labels[part]).run() for part in parts]
    )
    areas = torch.zeros(len(FACTORS), 3, K, dtype=torch.float64)
    for part, offsets in zip(parts, fitted, strict=True):
        others = (fitted.sum(0) - offsets) / max(1, len(parts) - 1)
        for i, factor in enumerate(FACTORS):
            predicted = (scores[part] + factor * others).argmax(1)
            areas[i] += count_areas(predicted, labels[part], K)
    best = is_best(labelled_mean(areas)).nonzero()
    return FACTORS[int(best[0])] * fitted.mean(0)


def _check(scores: Tensor, labels: Tensor) -> None:
    if not len(labels):
        raise DataSetError(
            'There is no labelled pixel to fit the offsets on: choose images '
            'with labels.'
        )
    low, high = labels.aminmax()
    if low < 0 or high >= scores.shape[1]:
        raise DataSetError(
            f'Labels {low} to {high} do not fit {scores.shape[1]} classes: '
            'set ignore_index, or take the scores of this data set.'
        )
    if not scores.isfinite().all():
        raise DataSetError(
            'Some scores are NaN or infinite: the network is not usable, or '
            'was run in half precision.'
        )


def _random_parts(images: Tensor) -> list[Tensor]:
    """Pixel numbers of each quarter of the images.

    With fewer than two images in a quarter, the pixels are divided instead.
    """
    names, numbers = images.unique(return_inverse=True)
    if len(names) < 2 * PARTS:
        numbers = torch.arange(len(images))
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(int(numbers.max()) + 1, generator=generator)
    part = (order % PARTS)[numbers]
    chosen = [(part == i).nonzero().flatten() for i in range(PARTS)]
    return [pixels for pixels in chosen if len(pixels)]


class Ascent:
    """The offsets, and the best two classes of each pixel with them.

    Args:
        scores: (P, K) with P > 0 and K > 1, finite.
        labels: (P,), each in [0, K).
    """

    def __init__(self, scores: Tensor, labels: Tensor) -> None:
        self.scores, self.labels = scores, labels
        self.num_classes = scores.shape[1]
        self.offsets = scores.new_zeros(self.num_classes)
        self.labelled = _count(labels, self.num_classes)
        self.values = scores.new_empty(len(scores), 2)
        self.classes = labels.new_empty(len(scores), 2)
        self._update(torch.arange(len(scores)))

    def run(self) -> Tensor:
        """Improve one offset after the other until none changes.

        The order depends on the classes' pixels and scores and not on their
        numbers, so that renumbered classes get the same offsets.
        """
        means, counts = self.scores.mean(0).tolist(), self.labelled.tolist()
        classes = self.labelled.nonzero().flatten().tolist()
        classes.sort(key=lambda k: (counts[k], means[k]), reverse=True)
        for _ in range(SWEEPS):
            before = self.offsets.clone()
            for k in classes:
                # Of equally good offsets the one nearest to 0.
                best = GRID[is_best(self.curve(k))]
                self.move(k, best[best.abs().argmin()])
            if torch.equal(before, self.offsets):
                break
        return self.offsets

    def curve(self, k: int) -> Tensor:
        """mIoU at each offset of class k in the grid."""
        first, second = self.classes.unbind(1)
        other = torch.where(first == k, second, first)
        best, next_best = self.values.unbind(1)
        rest = torch.where(first == k, next_best, best)
        threshold = rest - self.scores[:, k]
        # No offset of the grid assigns any other pixel to class k.
        near = (threshold < LIMIT).nonzero().flatten()
        # The first offset of the grid above each threshold.
        place = (threshold[near] * STEPS_PER_UNIT).floor().long()
        place = (place + LIMIT * STEPS_PER_UNIT + 1).clamp(min=0)
        label, given_up = self.labels[near], other[near]
        taken = self._histogram(place, given_up)
        is_lost, is_won = given_up == label, label == k
        lost = self._histogram(place[is_lost], given_up[is_lost])
        won = self._histogram(place[is_won], label[is_won])
        areas = count_areas(other, self.labels, self.num_classes)
        areas = areas.repeat(len(GRID), 1, 1)
        areas[:, 0] += won - lost
        areas[:, 1] -= taken
        areas[:, 1, k] = taken.sum(1)
        return labelled_mean(areas)

    def move(self, k: int, offset: Tensor) -> None:
        """Give class k another offset."""
        if offset == self.offsets[k]:
            return
        self.offsets[k] = offset
        is_among = (self.classes == k).any(1)
        is_among |= self.scores[:, k] + offset > self.values[:, 1]
        self._update(is_among.nonzero().flatten())

    def _update(self, pixels: Tensor) -> None:
        """Find the best two classes of some pixels."""
        best_two = (self.scores[pixels] + self.offsets).topk(2)
        self.values[pixels], self.classes[pixels] = best_two

    def _histogram(self, place: Tensor, classes: Tensor) -> Tensor:
        """Pixels of each class up to each place of the grid, (len, K)."""
        shape = len(GRID), self.num_classes
        flat = _count(place * self.num_classes + classes, shape[0] * shape[1])
        return flat.view(shape).cumsum(0)


def is_best(values: Tensor) -> Tensor:
    """Which values are the maximum, up to rounding."""
    return values >= values.max() - 1e-12


def count_areas(predicted: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Hit, predicted and labelled pixels of each class, (3, K), in float64."""
    counted = (predicted[predicted == labels], predicted, labels)
    return torch.stack([_count(each, num_classes) for each in counted])


def iou_of_areas(areas: Tensor) -> Tensor:
    """IoU of each class, (..., K), of areas (..., 3, K); NaN if absent."""
    hit, predicted, labelled = areas.unbind(-2)
    return hit / (predicted + labelled - hit)


def labelled_mean(areas: Tensor) -> Tensor:
    """mIoU over the classes that are labelled, (...)."""
    is_labelled = areas[..., 2, :] > 0
    values = iou_of_areas(areas).where(is_labelled, 0)
    return values.sum(-1) / is_labelled.sum(-1)


def _count(values: Tensor, size: int) -> Tensor:
    return torch.bincount(values, minlength=size).double()
