"""The effect of offsets on images, with its standard error."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from mmengine import dist
from mmengine.runner import Runner
from torch import Tensor
from torch.utils.data import DataLoader

from .ascent import Areas, count_areas
from .images import ScoredImage, scored_images

PERCENT = 100


class Figures(NamedTuple):
    """In percent, as mmseg's IoUMetric prints them."""

    mean: float
    """mIoU, or mean Dice"""
    accuracy: float
    """of all labelled pixels"""
    classes: list[float]
    """IoU or Dice of each class, NaN where it does not occur"""


class Measured(NamedTuple):
    """Without and with offsets, on the same images."""

    before: Figures
    after: Figures
    gain_error: float
    """standard error of the difference of the means, over images"""


def measure(
    runner: Runner,
    loader: DataLoader,
    offsets_of: Callable[[int], Tensor],
    metric: str,
) -> Measured:
    """Measure every pixel of the images with the offsets of each image.

    Args:
        offsets_of: The offsets (K,) for the image of a number.
    """
    parts = {}
    for image in scored_images(runner, loader, 'Before and after'):
        offsets = offsets_of(image.number).to(image.scores)
        before = image.scores.argmax(0)
        after = image.scores.add_(offsets[:, None, None]).argmax(0)
        areas = [_areas(predicted, image) for predicted in (before, after)]
        parts[image.number] = torch.stack(areas)
    for others in dist.all_gather_object(parts):
        parts |= others
    areas_of = [parts[number] for number in sorted(parts)]
    return compare(torch.stack(areas_of), metric)


def compare(areas: Tensor, metric: str) -> Measured:
    """From the areas of N images, (N, 2, 3, K), to the figures."""
    total = areas.sum(0)
    # The jackknife: each image left out once.
    means = _means(total - areas, metric)
    gains = means[:, 1] - means[:, 0]
    spread = (gains - gains.mean()).square().mean() * (len(areas) - 1)
    before, after = (_figures(each, metric) for each in total)
    return Measured(before, after, float(spread.sqrt()))


def _areas(predicted: Tensor, image: ScoredImage) -> Tensor:
    """(3, K)"""
    K = len(image.scores)
    chosen = image.labels < K
    areas = count_areas(predicted[chosen], image.labels[chosen], K)
    return torch.stack(areas).cpu()


def _means(areas: Tensor, metric: str) -> Tensor:
    scores = Areas(*areas.unbind(-2)).class_scores(metric)
    return PERCENT * scores.nanmean(-1)


def _figures(areas: Tensor, metric: str) -> Figures:
    classes = PERCENT * Areas(*areas).class_scores(metric)
    hit, _, labelled = areas.sum(-1)
    return Figures(
        mean=float(_means(areas, metric)),
        accuracy=float(PERCENT * hit / labelled),
        classes=classes.tolist(),
    )
