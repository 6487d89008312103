"""The ascent, step by step."""

import pytest
import torch

from mmseg_margin.offsets.ascent import GRID, METRICS, Ascent, nearest_best
from tests.offsets.builders import mean_metric

K = 5


def make_pixels(seed: int):
    """Scores on multiples of 1/32 between the offsets, so without ties."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-96, 96, (300, K), generator=generator) / 32
    # Distinct classes are distinct modulo the grid, pixels by pixels.
    scores = scores + torch.arange(K) / 4096
    return scores, torch.randint(K - 1, (300,), generator=generator)


@pytest.mark.parametrize('metric', METRICS)
@pytest.mark.parametrize('seed', range(3))
def test_a_curve_is_the_metric_at_each_offset(metric, seed):
    """Also after many moves, large and small ones."""
    scores, labels = make_pixels(seed)
    ascent = Ascent(scores, labels, metric)
    offsets = torch.zeros(K)
    generator = torch.Generator().manual_seed(seed)
    for step in range(8):
        k = step % K
        expected = []
        for value in GRID:
            offsets[k] = value
            expected.append(mean_metric(scores, labels, offsets, metric))
        assert ascent.curve(k).tolist() == expected
        for moved in (k, (k + 3) % K, (k + 4) % K):
            chosen = torch.randint(len(GRID), (), generator=generator)
            offsets[moved] = GRID[chosen]
            ascent.move(moved, GRID[chosen])


def test_an_ascent_ends_where_no_offset_is_better():
    scores, labels = make_pixels(0)
    ascent = Ascent(scores, labels, 'mIoU')
    offsets = ascent.run()
    last = mean_metric(scores, labels, offsets)
    assert last > mean_metric(scores, labels, torch.zeros(K))
    for k in range(K - 1):
        assert ascent.curve(k).max() == pytest.approx(last, abs=1e-12)
    assert offsets[-1] == 0  # without a label


def test_of_equally_good_offsets_the_smallest():
    curve = torch.zeros(len(GRID), dtype=torch.float64)
    assert nearest_best(curve) == 0
    curve[[3, 80, 81, 120]] = 1
    assert nearest_best(curve) == GRID[80] == 1
