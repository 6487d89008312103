"""Table and plot."""

from dataclasses import replace

import pytest
from matplotlib.figure import Figure
from PIL import Image

from mmseg_margin.functional import OffsetSettings
from mmseg_margin.stats import ClassStats, format_table, plot_stats


def stats_of(counts):
    names = [f'class {i}' for i in range(len(counts))]
    return ClassStats(names, counts, counts, counts)


def test_table():
    stats = replace(
        stats_of([9000, 1000]), dataset='Streets', files=1234, ignored=5
    )
    settings = OffsetSettings(largest_offset=0.9487)
    offsets = settings.offsets(stats.counts)
    text = format_table(stats, settings, offsets, [0.5, 2.25])
    title, *lines = text.splitlines()
    assert title.startswith('1,234 label files of Streets: 10,000 labelled')
    assert 'largest_offset=0.9487 (tau=10), upsilon=1' in title
    rows = [[x.strip() for x in y.split('|')[1:-1]] for y in lines[3:-1]]
    # rho_0k = tau sqrt(N - N_k) / N_k, here 10 sqrt(1000) / 9000
    first = ['class 0', '9,000', '90.0000', '9,000', '0.03514']
    second = ['class 1', '1,000', '10.0000', '1,000', '0.9487']
    assert [row[:5] for row in rows] == [first, second]
    assert [row[-1] for row in rows] == ['0.5', '2.25']


@pytest.mark.parametrize(
    'counts', [[5, 0, 7], [10**9, *range(1, 60)], [9, 0], [4]]
)
def test_plot(tmp_path, monkeypatch, counts):
    """Also of one class that holds every pixel; no share exceeds 100 %."""
    limits = []
    save = Figure.savefig

    def save_and_note(figure, *args, **kwargs):
        limits.append(figure.axes[0].get_xlim())
        save(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, 'savefig', save_and_note)
    plot_stats(stats_of(counts), tmp_path / 'plot.png')
    with Image.open(tmp_path / 'plot.png') as image:
        assert image.height > 30 * len(counts)
    assert limits[0][1] <= 100
