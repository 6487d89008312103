"""The plot can be drawn for any set that has margins."""

import pytest
from PIL import Image

from mmseg_margin.stats import ClassStats, plot_stats


@pytest.mark.parametrize(
    'counts', [[97, 3], [5, 0, 7], [10**9, *range(1, 60)]]
)
def test_plot(tmp_path, counts):
    names = [f'class {i}' for i in range(len(counts))]
    stats = ClassStats(names, counts, [1] * len(counts), counts)
    plot_stats(stats, tmp_path / 'plot.png')
    with Image.open(tmp_path / 'plot.png') as image:
        width, height = image.size
    assert width > 1000
    assert height > 30 * len(counts)


def test_nothing_to_plot(tmp_path):
    with pytest.raises(ValueError, match='at least two'):
        plot_stats(ClassStats(['a'], [1], [1], [1]), tmp_path / 'plot.png')
