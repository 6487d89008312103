"""Table and plot: margins where there are any, a dash where there are none."""

import pytest
from PIL import Image

from mmseg_margin.stats import (
    ClassStats,
    Provenance,
    format_table,
    plot_stats,
)


def rows(stats, **kwargs):
    """The cells of the table, by class."""
    lines = format_table(stats, **kwargs).splitlines()[4:-1]
    cells = [[x.strip() for x in line.split('|')[1:-1]] for line in lines]
    return {row[0]: row[1:] for row in cells}


def test_pixels_share_images_margins_and_weights():
    stats = ClassStats(['sky', 'road'], [9000, 1000], [12, 3], [1, 1])
    table = rows(stats, tau=10, weights=[0.5, 2.25])
    # rho_0k = tau sqrt(N - N_k) / N_k, here 10 sqrt(1000) / 9000
    assert table['sky'][:4] == ['9,000', '90.0000', '12', '0.03514']
    assert table['road'][:4] == ['1,000', '10.0000', '3', '0.9487']
    assert [row[-1] for row in table.values()] == ['0.5', '2.25']


def test_absent_class():
    stats = ClassStats(list('abc'), [5, 5, 0], [1, 1, 0], [10, 10, 0])
    table = rows(stats)
    assert table['c'] == ['0', '0.0000', '0', '-', '-']
    assert table['a'][3] == '4.472'


def test_no_margins_at_all():
    for counts in ([7], [0, 0], [3, 0]):
        names = [f'class {i}' for i in range(len(counts))]
        stats = ClassStats(names, counts, counts, counts)
        assert all(row[3:] == ['-', '-'] for row in rows(stats).values())


def test_title():
    source = Provenance('Streets', 1234, ignore_index=None)
    stats = ClassStats(['a', 'b'], [10, 20], [1, 1], [30, 30], 5, source)
    title = format_table(stats, tau=3).splitlines()[0]
    assert title.startswith('1,234 label files of Streets: 30 labelled and 5')
    assert title.endswith('tau=3, upsilon=1')


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
