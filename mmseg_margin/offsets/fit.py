"""Fitted offsets from scores and labels, with torch alone.

The ascent is run on each quarter of the images, and cross-validation over the
quarters shrinks the mean of the four results.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from mmseg_margin.errors import DataSetError, SettingError

from .ascent import (
    CHUNK,
    METRICS,
    Ascent,
    count_areas,
    is_best,
    labelled_mean,
    predict,
)

PARTS = 4
FACTORS = (0.0, 0.25, 0.5, 0.75, 1.0)
# Scores (P, K), labels (P,) and the numbers of the images (P,).
PixelSample = tuple[Tensor, ...]


def fit_offsets(
    batches: Iterable[tuple[Tensor, Tensor]],
    metric: str = 'mIoU',
    *,
    ignore_index: int = 255,
    pixels_per_image: int = 2_000,
) -> Tensor:
    """Fit offsets that, added to the scores, raise mIoU or mean Dice.

    Of each image some pixels on a regular grid are kept, so the batches may
    come from a generator and need not be in memory together.

    Args:
        batches: Pairs of scores before the softmax, (N, K, H, W), and labels
            at the same resolution, (N, H, W).
        metric: ``'mIoU'`` or ``'mDice'``.
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
    check_choice('metric', metric, METRICS)
    pairs = (pair for batch in batches for pair in zip(*batch, strict=True))
    parts = [
        grid_pixels(number, scores.detach(), labels, pixels_per_image)
        for number, (scores, labels) in enumerate(pairs)
    ]
    if not parts:
        raise DataSetError('There is no image to fit on: check the batches.')
    scores, labels, images = map(torch.cat, zip(*parts, strict=True))
    kept = labels != ignore_index
    return fit_pixels((scores[kept], labels[kept], images[kept]), metric)


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


def fit_pixels(sample: PixelSample, metric: str) -> Tensor:
    """Fit offsets (K,) to labelled pixels.

    They are fitted on each quarter of the images, averaged, and multiplied
    by one factor out of 0, 0.25, ..., 1: the one that gives the best metric
    if each quarter is measured with the mean of the other three.
    """
    scores, labels, images = sample
    _check(scores, labels)
    K = scores.shape[1]
    parts = _random_parts(images)
    fitted = torch.stack(
        [Ascent(scores[part], labels[part], metric).run() for part in parts]
    )
    areas = torch.zeros(len(FACTORS), 3, K, dtype=torch.float64)
    for part, offsets in zip(parts, fitted, strict=True):
        others = (fitted.sum(0) - offsets) / max(1, len(parts) - 1)
        for i, factor in enumerate(FACTORS):
            predicted = predict(scores[part], factor * others)
            areas[i] += count_areas(predicted, labels[part], K)
    best = is_best(labelled_mean(areas, metric)).nonzero()
    return FACTORS[int(best[0])] * fitted.mean(0)


def check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a setting that has none of its known values."""
    if value not in known:
        raise SettingError(
            f'{name}={value!r} is unknown: choose {" or ".join(known)}.'
        )


def _check(scores: Tensor, labels: Tensor) -> None:
    if not len(labels):
        raise DataSetError(
            'There is no labelled pixel to fit the offsets on: choose more '
            'images, with labels.'
        )
    K = scores.shape[1]
    if K < 2:
        raise SettingError(
            'scores has one class, which has nothing to be compared with: for '
            'a binary head give the scores (0, s).'
        )
    low, high = labels.aminmax()
    if low < 0 or high >= K:
        raise DataSetError(
            f'The labels are in [{low}, {high}], but there are {K} classes: '
            'set ignore_index, or take the scores of this data set.'
        )
    if not all(chunk.isfinite().all() for chunk in scores.split(CHUNK)):
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
