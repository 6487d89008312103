"""Table and plot: offsets where defined, a dash or nothing elsewhere."""

import pytest
from PIL import Image

from mmseg_margin.functional import OffsetSettings
from mmseg_margin.stats import (
    ClassStats,
    Provenance,
    format_table,
    plot_stats,
)
from tests.stats.test_class_stats import stats_of

PAPER = OffsetSettings()


def rows(stats, *args):
    """The cells of the table, a list for each class."""
    lines = format_table(stats, *args).splitlines()[4:-1]
    return [[x.strip() for x in line.split('|')[1:-1]] for line in lines]


def test_table():
    source = Provenance('Streets', 1234, ignore_index=None)
    stats = ClassStats(
        ['sky', 'road'], [9000, 1000], [12, 3], [1, 1], 5, source
    )
    sky, road = rows(stats, PAPER, [0.5, 2.25])
    # rho_0k = tau sqrt(N - N_k) / N_k, here 10 sqrt(1000) / 9000
    assert sky[:5] == ['sky', '9,000', '90.0000', '12', '0.03514']
    assert road[:5] == ['road', '1,000', '10.0000', '3', '0.9487']
    assert (sky[-1], road[-1]) == ('0.5', '2.25')
    title = format_table(stats, OffsetSettings(tau=3)).splitlines()[0]
    assert title.startswith('1,234 label files of Streets: 10,000 labelled')
    assert title.endswith(
        'and 5 ignored pixels; margin-offsets for tau=3, upsilon=1'
    )
    scaled = format_table(stats, OffsetSettings(largest_offset=0.5))
    assert 'for largest_offset=0.5 (tau=5.27), upsilon=1' in scaled
    plain = format_table(stats)
    assert 'rho' not in plain
    assert 'margin' not in plain


def test_absent_class():
    first, _, absent = rows(stats_of([5, 5, 0]), PAPER)
    assert absent[1:] == ['0', '0.0000', '0', '-', '-']
    assert first[4] == '4.472'
    policy = OffsetSettings(absent_class='max')
    assert rows(stats_of([5, 5, 0]), policy)[2][4:] == ['4.472', '0']


@pytest.mark.parametrize('counts', [[7], [0, 0], [3, 0]])
def test_no_margins_at_all(counts):
    found = rows(stats_of(counts), PAPER)
    assert all(row[4:] == ['-', '-'] for row in found)


@pytest.mark.parametrize(
    'counts', [[97, 3], [5, 0, 7], [10**9, *range(1, 60)], [9, 0], [4]]
)
@pytest.mark.parametrize('offsets', [None, OffsetSettings(0.0), PAPER])
def test_plot(tmp_path, counts, offsets):
    """Also of one class that holds every pixel."""
    plot_stats(stats_of(counts), tmp_path / 'plot.png', offsets)
    with Image.open(tmp_path / 'plot.png') as image:
        width, height = image.size
    assert width > 1000
    assert height > 30 * len(counts)


def test_nothing_to_plot(tmp_path):
    with pytest.raises(ValueError, match='no labelled pixel'):
        plot_stats(stats_of([0, 0]), tmp_path / 'plot.png')
