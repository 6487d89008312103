"""Names from data sets are escaped before they reach a terminal."""

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


def test_usual_names_stay():
    assert printable('Straßenbahn (电车) <1>') == 'Straßenbahn (电车) <1>'


def test_table_and_plot_of_hostile_names(tmp_path):
    ones = [1] * len(HOSTILE)
    stats = ClassStats(list(HOSTILE), ones, ones, ones)
    table = format_table(stats)
    assert len(table.splitlines()) == 5 + len(HOSTILE)
    assert 'a\\x1b[2J' in table
    plot_stats(stats, tmp_path / 'plot.png')
    assert (tmp_path / 'plot.png').stat().st_size > 1000


def test_error_of_a_hostile_class():
    counts = [1] * (len(HOSTILE) - 1)
    stats = ClassStats(list(HOSTILE), [0, *counts], [0, *counts], [0, *counts])
    with pytest.raises(ValueError, match=r'a\\x1b\[2J\) has no labelled'):
        stats.margins()


@pytest.mark.filterwarnings('ignore')
def test_report_of_hostile_files(tmp_path):
    init_default_scope('mmseg')
    root = write_set(tmp_path, len(HOSTILE), values=(0, 1))
    for index, name in enumerate((*HOSTILE, 'bytes \udcff')):
        write_label_file(root, 0, np.full((32, 48), 99, np.uint8))
        for folder in ('img', 'ann'):
            path = root / folder / f'{name.replace("/", "")}.png'
            if index != 2:  # a lone surrogate is no file name
                content = (root / folder / '0000.png').read_bytes()
                path.write_bytes(content)
    dataset = open_set(root, classes=HOSTILE)
    report = str(check_labels(dataset, {}))
    report.encode('utf-8')
    assert 'ann/a\\x1b[2J.png: 99' in report
    assert 'ann/b\\n| fake.png: 99' in report
    assert 'ann/bytes \\udcff.png: 99' in report
    assert '\x1b' not in report
