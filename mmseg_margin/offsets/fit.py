"""The fit: offsets from scores and labels, shrunk by cross-validation."""

import torch
from torch import Tensor

from mmseg_margin.errors import DataSetError, SettingError

from .ascent import (
    METRICS,
    Ascent,
    count_areas,
    is_best,
    labelled_mean,
    predict,
)

PARTS = 4
FACTORS = (0.0, 0.25, 0.5, 0.75, 1.0)
MIN_IMAGES = 2 * PARTS
MAX_PIXELS = 400_000


def fit_offsets(
    scores: Tensor,
    labels: Tensor,
    images: Tensor | None = None,
    metric: str = 'mIoU',
    *,
    ignore_index: int = 255,
    max_pixels: int = MAX_PIXELS,
    seed: int = 0,
) -> Tensor:
    """Offsets that, added to the scores, raise mIoU or mean Dice.

    They are fitted on each quarter of the images, averaged, and multiplied
    by one factor out of 0, 0.25, ..., 1: the one that gives the best metric
    if each quarter is measured with the mean of the other three.

    Args:
        scores: Before the softmax, (P, K) or (N, K, H, W).
        labels: (P,) or (N, H, W).
        images: The number of each pixel's image, (P,), or of each image,
            (N,). None: each pixel of (P, K) is an image of its own, and so
            is each entry of (N, K, H, W).
        metric: ``'mIoU'`` or ``'mDice'``.
        ignore_index: The label of pixels that do not count.
        max_pixels: If there are more, only every n-th is used.
        seed: For the choice of the quarters.

    Returns:
        (K,) in float32. Classes without a label keep 0.

    Example:
        >>> scores = torch.tensor([[2.0, 0.0], [1.5, 1.0], [0.0, 1.0]])
        >>> fit_offsets(scores, torch.tensor([0, 1, 1])).shape
        torch.Size([2])
    """
    check_choice('metric', metric, METRICS)
    if images is None:
        images = torch.arange(len(scores), device=scores.device)
    shape = scores.shape[:1] + scores.shape[2:]
    if scores.dim() not in (2, 4) or not (
        labels.shape == shape and images.shape == shape[:1]
    ):
        raise SettingError(
            f'scores {tuple(scores.shape)}, labels {tuple(labels.shape)} and '
            f'images {tuple(images.shape)} do not belong together: give '
            '(P, K), (P,) and (P,), or (N, K, H, W), (N, H, W) and (N,).'
        )
    size = shape[1:].numel()  # 1, if the pixels are given one by one
    labels = labels.reshape(-1).long()
    kept = (labels != ignore_index).nonzero().flatten()
    kept = kept[:: -(-len(kept) // max_pixels) or 1]
    maps = scores.reshape(*scores.shape[:2], size)
    scores = maps[kept // size, :, kept % size].float()
    labels, images = labels[kept], images[kept // size]
    _check(scores, labels)
    return _fit_parts(scores, labels, images, metric, seed)


def check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a setting that has none of its known values."""
    if value not in known:
        raise SettingError(
            f'{name}={value!r} is unknown: choose {" or ".join(known)}.'
        )


def _check(scores: Tensor, labels: Tensor) -> None:
    if not len(labels):
        raise DataSetError(
            'There is no labelled pixel to fit the offsets on: choose images '
            'with labels.'
        )
    K = scores.shape[1]
    if K < 2:
        raise SettingError(
            'scores has one class, which has nothing to be compared with: for '
            'a binary head give the scores (0, s).'
        )
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= K:
        raise DataSetError(
            f'The labels are in [{low}, {high}], but there are {K} classes: '
            'set ignore_index, or take the scores of this data set.'
        )
    if not all(chunk.isfinite().all() for chunk in scores.split(2**16)):
        raise DataSetError(
            'Some scores are NaN or infinite: the network is not usable, or '
            'was run in half precision.'
        )


def _fit_parts(
    scores: Tensor, labels: Tensor, images: Tensor, metric: str, seed: int
) -> Tensor:
    K = scores.shape[1]
    parts = _random_parts(images, seed)
    fitted = torch.stack(
        [Ascent(scores[part], labels[part], metric).run() for part in parts]
    )
    areas = torch.zeros(len(FACTORS), 3, K, dtype=torch.float64)
    for part, offsets in zip(parts, fitted, strict=True):
        others = (fitted.sum(0) - offsets) / max(1, len(parts) - 1)
        for i, factor in enumerate(FACTORS):
            predicted = predict(scores[part], factor * others)
            areas[i] += count_areas(predicted, labels[part], K).cpu()
    best = is_best(labelled_mean(areas, metric)).nonzero()
    return FACTORS[int(best[0])] * fitted.mean(0)


def _random_parts(images: Tensor, seed: int) -> list[Tensor]:
    """Pixel numbers of each quarter of the images.

    With fewer than eight images, the pixels are divided instead.
    """
    names, numbers = images.unique(return_inverse=True)
    if len(names) < MIN_IMAGES:
        numbers = torch.arange(len(images), device=images.device)
    size = int(numbers.max()) + 1
    generator = torch.Generator().manual_seed(seed)
    part = torch.randperm(size, generator=generator) % PARTS
    part = part.to(images.device)[numbers]
    chosen = [(part == i).nonzero().flatten() for i in range(PARTS)]
    return [pixels for pixels in chosen if len(pixels)]
