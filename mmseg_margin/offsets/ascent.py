r"""Exact coordinate ascent of mIoU or mean Dice in the class offsets.

With the other offsets fixed, pixel i goes to class k exactly if

.. math:: b_k > t_{ik} = \max_{j \ne k} (s_{ij} + b_j) - s_{ik},

the negative margin (Eq. 8) under the current offsets. A histogram of t, by the
class that the pixel would get without class k, therefore gives every class's
hits and predictions, and so the metric, at every value of :math:`b_k` at once.
"""

import torch
from torch import Tensor

METRICS = ('mIoU', 'mDice')
# The offsets that are tried. A power of two makes the index of a threshold
# exact.
STEPS_PER_UNIT = 16
LIMIT = 4
GRID = torch.arange(-LIMIT * STEPS_PER_UNIT, LIMIT * STEPS_PER_UNIT + 1)
GRID = GRID / STEPS_PER_UNIT
SWEEPS = 4
CHUNK = 2**16  # pixels whose shifted scores exist at the same time


def class_metrics(areas: Tensor, metric: str) -> Tensor:
    """IoU or Dice of each class, (..., K), NaN where it is absent.

    Args:
        areas: Hit, predicted and labelled pixels of each class, (..., 3, K).
        metric: ``'mIoU'`` or ``'mDice'``.
    """
    hit, predicted, labelled = areas.unbind(-2)
    both = predicted + labelled
    return 2 * hit / both if metric == 'mDice' else hit / (both - hit)


def labelled_mean(areas: Tensor, metric: str) -> Tensor:
    """The mean over the classes that are labelled, (...)."""
    is_labelled = areas[..., 2, :] > 0
    values = class_metrics(areas, metric).where(is_labelled, 0)
    return values.sum(-1) / is_labelled.sum(-1)


def count_areas(predicted: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """The areas (3, K) of predicted classes and labels (P,), in float64."""
    counted = (predicted[predicted == labels], predicted, labels)
    return torch.stack([_count(each, num_classes) for each in counted])


def predict(scores: Tensor, offsets: Tensor) -> Tensor:
    """The classes (P,) of scores (P, K) with offsets."""
    chunks = scores.split(CHUNK)
    return torch.cat([(chunk + offsets).argmax(1) for chunk in chunks])


class Ascent:
    """The offsets, and the best two classes of each pixel with them.

    Args:
        scores: (P, K) with P > 0 and K > 1, finite.
        labels: (P,), each in [0, K).
        metric: ``'mIoU'`` or ``'mDice'``.
    """

    def __init__(self, scores: Tensor, labels: Tensor, metric: str) -> None:
        self.scores, self.labels, self.metric = scores, labels, metric
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
                self.move(k, nearest_best(self.curve(k)))
            if torch.equal(before, self.offsets):
                break
        return self.offsets

    def curve(self, k: int) -> Tensor:
        """The metric at each offset of class k in the grid."""
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
        return labelled_mean(areas, self.metric)

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
        for part in pixels.split(CHUNK):
            best_two = (self.scores[part] + self.offsets).topk(2)
            self.values[part], self.classes[part] = best_two

    def _histogram(self, place: Tensor, classes: Tensor) -> Tensor:
        """Pixels of each class up to each place of the grid, (len, K)."""
        shape = len(GRID), self.num_classes
        flat = _count(place * self.num_classes + classes, shape[0] * shape[1])
        return flat.view(shape).cumsum(0)


def nearest_best(curve: Tensor) -> Tensor:
    """The best offset; of equally good ones the one nearest to 0."""
    best = GRID[is_best(curve)]
    return best[best.abs().argmin()]


def is_best(values: Tensor) -> Tensor:
    """Which values are the maximum, up to rounding."""
    return values >= values.max() - 1e-12


def _count(values: Tensor, size: int) -> Tensor:
    return torch.bincount(values, minlength=size).double()
