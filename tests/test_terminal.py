"""Names from data sets are escaped before they reach a terminal."""

import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mmengine.registry import init_default_scope

from mmseg_margin.stats import (
    ClassStats,
    check_labels,
    format_table,
    plot_stats,
)
from mmseg_margin.terminal import drawable, printable
from tests.stats.builders import open_set, write_label_file, write_set

HOSTILE = ('a\x1b[2J', 'b\n| fake', '\ud800', '$\\frac{', '\u202ered', '<b>&')


@given(st.text())
def test_printable(text):
    shown = printable(text)
    assert shown.isprintable()
    shown.encode('utf-8')
    assert printable(shown) == shown
    assert drawable(text).replace(r'\$', '$') == shown

    usual = 'Straßenbahn (电车) <1>'
    assert printable(usual) == usual


def test_table_plot_and_error_of_hostile_names(tmp_path):
    counts = [0] + [1] * (len(HOSTILE) - 1)
    stats = ClassStats(list(HOSTILE), counts, counts, counts)
    table = format_table(stats)
    assert len(table.splitlines()) == 5 + len(HOSTILE)
    assert 'a\\x1b[2J' in table
    plot_stats(stats, tmp_path / 'plot.png')
    assert (tmp_path / 'plot.png').stat().st_size > 1000


@pytest.mark.filterwarnings('ignore')
def test_report_of_hostile_files(tmp_path):
    init_default_scope('mmseg')
    root = write_set(tmp_path, 1)
    write_label_file(root, 0, np.full((32, 48), 99, np.uint8))
    for folder in (root / 'img', root / 'ann'):
        for name in ('a\x1b[2J', 'b\n| fake', 'bytes \udcff'):
            shutil.copy(folder / '0000.png', folder / f'{name}.png')
    report = str(check_labels(open_set(root, classes=HOSTILE), {}))
    report.encode('utf-8')
    for shown in ('a\\x1b[2J', 'b\\n| fake', 'bytes \\udcff'):
        assert f'ann/{shown}.png: 99' in report
    assert '\x1b' not in report
