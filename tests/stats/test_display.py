"""Table and plot: offsets where defined, a dash or nothing elsewhere."""

from dataclasses import replace

import pytest
from matplotlib.figure import Figure
from PIL import Image

from mmseg_margin.functional import MarginOffsets, OffsetSettings
from mmseg_margin.stats import format_table, plot_stats
from tests.stats.test_class_stats import stats_of

PAPER = OffsetSettings()


def rows(text):
    """The cells of the table, a list for each class."""
    lines = text.splitlines()[4:-1]
    return [[x.strip() for x in line.split('|')[1:-1]] for line in lines]


def test_table():
    stats = replace(
        stats_of([9000, 1000]), dataset='Streets', files=1234, ignored=5
    )
    offsets = PAPER.offsets(stats.counts)
    first, second = rows(format_table(stats, PAPER, offsets, [0.5, 2.25]))
    # rho_0k = tau sqrt(N - N_k) / N_k, here 10 sqrt(1000) / 9000
    assert first[:5] == ['class 0', '9,000', '90.0000', '9,000', '0.03514']
    assert second[:5] == ['class 1', '1,000', '10.0000', '1,000', '0.9487']
    assert (first[-1], second[-1]) == ('0.5', '2.25')
    title = format_table(stats, OffsetSettings(tau=3), offsets).splitlines()[0]
    for part in ('1,234 label files of Streets', '10,000', ' 5 ', 'tau=3'):
        assert part in title
    scaled = OffsetSettings(largest_offset=0.5)
    assert 'largest_offset=0.5 (tau=5.27)' in format_table(
        stats, scaled, scaled.offsets(stats.counts)
    )
    plain = format_table(stats)
    assert 'rho' not in plain
    assert 'margin' not in plain


def test_undefined_offsets():
    stats = stats_of([5, 5, 0])
    absent = rows(format_table(stats, PAPER, PAPER.offsets(stats.counts)))[2]
    assert absent[1:] == ['0', '0.0000', '0', '-', '-']
    policy = OffsetSettings(absent_class='max')
    largest = format_table(stats, policy, policy.offsets(stats.counts))
    assert rows(largest)[2][4:] == ['4.472', '0']
    assert all(
        row[4:] == ['-', '-'] for row in rows(format_table(stats, PAPER))
    )


@pytest.mark.parametrize(
    'counts', [[97, 3], [5, 0, 7], [10**9, *range(1, 60)], [9, 0], [4]]
)
@pytest.mark.parametrize('has_offsets', [False, True])
def test_plot(tmp_path, monkeypatch, counts, has_offsets):
    """Also of one class that holds every pixel; no share exceeds 100 %."""
    figures = []
    save = Figure.savefig

    def save_and_note(figure, *args, **kwargs):
        figures.append(figure)
        save(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, 'savefig', save_and_note)
    offsets = None
    if has_offsets and sum(count > 0 for count in counts) > 1:
        offsets = PAPER.offsets(counts)
    plot_stats(stats_of(counts), tmp_path / 'plot.png', offsets)
    with Image.open(tmp_path / 'plot.png') as image:
        width, height = image.size
    assert width > 1000
    assert height > 30 * len(counts)
    panels = figures[0].axes
    assert len(panels) == 1 + isinstance(offsets, MarginOffsets)
    assert panels[0].get_xlim()[1] <= 100


def test_nothing_to_plot(tmp_path):
    with pytest.raises(ValueError, match='no labelled pixel'):
        plot_stats(stats_of([0, 0]), tmp_path / 'plot.png')
