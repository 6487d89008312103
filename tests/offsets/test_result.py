"""Scores before and after, and the jackknife."""

import pytest
import torch

from mmseg_margin.offsets.result import measure_gain


def make_areas(num_images: int = 6) -> torch.Tensor:
    """Hits, predictions and labels of three classes, before and after."""
    generator = torch.Generator().manual_seed(0)
    hit = torch.randint(1, 9, (num_images, 2, 1, 3), generator=generator)
    more = torch.randint(9, (num_images, 2, 2, 3), generator=generator)
    areas = torch.cat([hit, hit + more], 2).double()
    areas[:, 1, 2] = areas[:, 0, 2]
    areas[..., 1, :] = areas[..., 1, :].clamp(min=areas[..., 0, :])
    areas[..., 2] = 0  # a class that does not occur
    return areas


def mean_iou(areas: torch.Tensor) -> float:
    hit, predicted, labelled = areas.sum(0)[:, :2].tolist()
    ious = [
        h / (p + n - h)
        for h, p, n in zip(hit, predicted, labelled, strict=True)
    ]
    return 100 * sum(ious) / len(ious)


def test_scores():
    areas = make_areas()
    *both, _ = measure_gain(areas, 'mIoU')
    for i, scores in enumerate(both):
        assert scores.mean == pytest.approx(mean_iou(areas[:, i]))
        hit, labelled = areas[:, i, 0].sum(), areas[:, i, 2].sum()
        assert scores.accuracy == pytest.approx(float(100 * hit / labelled))
    dice = measure_gain(areas, 'mDice')[0].classes
    iou = both[0].classes
    assert dice[0] == pytest.approx(200 * iou[0] / (100 + iou[0]))
    assert str(iou[2]) == 'nan'


def test_the_standard_error_leaves_out_each_image_once():
    areas = make_areas()
    gains = []
    for i in range(6):
        rest = torch.cat([areas[:i], areas[i + 1 :]])
        gains.append(mean_iou(rest[:, 1]) - mean_iou(rest[:, 0]))
    mean = sum(gains) / 6
    variance = 5 / 6 * sum((gain - mean) ** 2 for gain in gains)
    *_, error = measure_gain(areas, 'mIoU')
    assert error == pytest.approx(variance**0.5)
    assert str(measure_gain(areas[:1], 'mIoU')[2]) == 'nan'
