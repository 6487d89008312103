"""Table and plot: margins where there are any, a dash where there are none."""

import pytest
from PIL import Image

from mmseg_margin.stats import (
    ClassStats,
    Provenance,
    format_table,
    plot_stats,
)
from tests.stats.test_class_stats import stats_of


def rows(stats, **kwargs):
    """The cells of the table, a list for each class."""
    lines = format_table(stats, **kwargs).splitlines()[4:-1]
    return [[x.strip() for x in line.split('|')[1:-1]] for line in lines]


def test_table():
    source = Provenance('Streets', 1234, ignore_index=None)
    stats = ClassStats(
        ['sky', 'road'], [9000, 1000], [12, 3], [1, 1], 5, source
    )
    sky, road = rows(stats, tau=10, weights=[0.5, 2.25])
    # rho_0k = tau sqrt(N - N_k) / N_k, here 10 sqrt(1000) / 9000
    assert sky[:5] == ['sky', '9,000', '90.0000', '12', '0.03514']
    assert road[:5] == ['road', '1,000', '10.0000', '3', '0.9487']
    assert (sky[-1], road[-1]) == ('0.5', '2.25')
    title = format_table(stats, tau=3).splitlines()[0]
    assert title.startswith('1,234 label files of Streets: 10,000 labelled')
    assert title.endswith(
        'and 5 ignored pixels; margin-offsets for tau=3, upsilon=1'
    )


def test_absent_class():
    first, _, absent = rows(stats_of([5, 5, 0]))
    assert absent[1:] == ['0', '0.0000', '0', '-', '-']
    assert first[4] == '4.472'


@pytest.mark.parametrize('counts', [[7], [0, 0], [3, 0]])
def test_no_margins_at_all(counts):
    assert all(row[4:] == ['-', '-'] for row in rows(stats_of(counts)))


@pytest.mark.parametrize(
    'counts', [[97, 3], [5, 0, 7], [10**9, *range(1, 60)]]
)
@pytest.mark.parametrize('tau', [0.0, 10.0])
def test_plot(tmp_path, counts, tau):
    plot_stats(stats_of(counts), tmp_path / 'plot.png', tau)
    with Image.open(tmp_path / 'plot.png') as image:
        width, height = image.size
    assert width > 1000
    assert height > 30 * len(counts)


def test_nothing_to_plot(tmp_path):
    with pytest.raises(ValueError, match='at least two'):
        plot_stats(stats_of([1]), tmp_path / 'plot.png')
