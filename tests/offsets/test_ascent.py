"""The histogram step against predictions at each offset of the grid."""

import pytest
import torch

from mmseg_margin.offsets.ascent import GRID, METRICS, Ascent, nearest_best


def make_pixels(seed: int, num_pixels: int = 300, num_classes: int = 5):
    """Scores on multiples of 1/32 between the offsets, so without ties."""
    generator = torch.Generator().manual_seed(seed)
    shape = num_pixels, num_classes
    scores = torch.randint(-96, 96, shape, generator=generator) / 32
    # Distinct classes are distinct modulo the grid, pixels by pixels.
    scores = scores + torch.arange(num_classes) / 4096
    labels = torch.randint(num_classes - 1, (num_pixels,), generator=generator)
    return scores, labels


def measure(scores, labels, offsets, metric):
    """Mean IoU or Dice of the labelled classes, by sets of pixels."""
    predicted = (scores + offsets).argmax(1)
    values = []
    for k in labels.unique().tolist():
        hit = int(((predicted == k) & (labels == k)).sum())
        both = int((predicted == k).sum() + (labels == k).sum())
        dice = metric == 'mDice'
        values.append(2 * hit / both if dice else hit / (both - hit))
    return sum(values) / len(values)


@pytest.mark.parametrize('metric', METRICS)
@pytest.mark.parametrize('seed', range(3))
def test_a_curve_is_the_metric_at_each_offset(metric, seed):
    scores, labels = make_pixels(seed)
    ascent = Ascent(scores, labels, metric)
    offsets = torch.zeros(5)
    generator = torch.Generator().manual_seed(seed)
    for step in range(8):
        k = step % 5
        expected = []
        for value in GRID:
            offsets[k] = value
            expected.append(measure(scores, labels, offsets, metric))
        curve = ascent.curve(k)
        torch.testing.assert_close(
            curve, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=0
        )
        chosen = torch.randint(len(GRID), (), generator=generator)
        offsets[k] = GRID[chosen]
        ascent.move(k, GRID[chosen])


def test_an_ascent_ends_where_no_offset_is_better():
    scores, labels = make_pixels(0)
    ascent = Ascent(scores, labels, 'mIoU')
    first = measure(scores, labels, torch.zeros(5), 'mIoU')
    offsets = ascent.run()
    last = measure(scores, labels, offsets, 'mIoU')
    assert last > first
    for k in range(4):
        assert ascent.curve(k).max() == pytest.approx(last, abs=1e-12)
    assert offsets[4] == 0  # without a label


def test_the_best_two_stay_right_in_large_and_small_moves():
    scores, labels = make_pixels(1, num_classes=12)
    ascent = Ascent(scores, labels, 'mIoU')
    generator = torch.Generator().manual_seed(0)
    for step in range(60):
        k = step * 7 % 12
        chosen = torch.randint(len(GRID), (), generator=generator)
        ascent.move(k, GRID[chosen])
        values, classes = (scores + ascent.offsets).topk(2)
        assert torch.equal(ascent.values, values)
        assert torch.equal(ascent.classes, classes)


def test_of_equally_good_offsets_the_smallest():
    curve = torch.zeros(len(GRID), dtype=torch.float64)
    assert nearest_best(curve) == 0
    curve[[3, 80, 81, 120]] = 1
    assert nearest_best(curve) == GRID[80] == 1
