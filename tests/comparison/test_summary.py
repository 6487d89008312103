"""Several comparisons summed up, against sums done by hand."""

import csv
import json
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from mmseg_margin.comparison.results import save_comparison
from mmseg_margin.comparison.summary import load_summary
from mmseg_margin.comparison.summary_report import cost_table, metric_table
from tests.comparison.invented import (
    cells,
    comparison_of,
    write_comparison,
)

TOOL = Path(__file__).parents[2] / 'tools' / 'summarise.py'
MIOU = {
    'short/a': {'ce': (50, 52), 'lovasz': (53, 55), 'margin': (56, 56)},
    'short/b': {'ce': (60, 60), 'lovasz': (63, 61), 'margin': (59, 61)},
    'long/a': {'ce': (54, None), 'lovasz': (54, 56)},
}


@pytest.fixture
def places(tmp_path):
    """Folders, but the last as one file, as it is kept beside a report."""
    places = []
    for label, miou in MIOU.items():
        comparison, out = comparison_of(miou), tmp_path / label
        for key, result in comparison.results.items():
            seconds = 2.0 if key[0] == 'margin' else 1.0
            comparison.results[key] = replace(
                result, seconds_per_iteration=seconds
            )
        write_comparison(out, comparison)
        places.append(f'{label}={out}')
    save_comparison(comparison, out / 'results.json')
    return [*places[:-1], f'{label}={out / "results.json"}']


def main(*arguments):
    runpy.run_path(str(TOOL))['main']([str(each) for each in arguments])


def test_ranks_and_differences(places):
    summary = load_summary(places)
    assert summary.names == ['lovasz', 'margin', 'ce']
    # Second and first, before the others; ce and margin draw in short/b.
    assert summary.rank('lovasz') == pytest.approx((2 + 1 + 1) / 3)
    assert summary.rank('margin') == pytest.approx((1 + 2.5) / 2)
    assert summary.rank('ce') == pytest.approx((3 + 2.5 + 2) / 3)
    # In the last only the seed that both have.
    differences = {'short/a': 3, 'short/b': 2, 'long/a': 0}
    assert summary.differences('lovasz') == differences
    difference = summary.difference('lovasz')
    assert difference.mean == pytest.approx(5 / 3)
    # Deviation 1.5275, t of two degrees 4.303.
    assert difference.high == pytest.approx(5 / 3 + 4.303 * 0.88192, abs=1e-3)
    assert summary.cost('margin') == {'short/a': 2.0, 'short/b': 2.0}


def test_tables(places):
    summary = load_summary(places)
    table = cells(metric_table(summary, 'mIoU'))
    assert table['margin', 'short/a'] == '56.00 ± 0.00'
    assert table['margin', 'mean short'] == '58.00'
    assert table['margin', 'mean long'] == '\u2013'
    assert table['ce', 'long/a'] == '54.00'
    assert table['lovasz', 'worst difference'] == '+0.00'
    assert table['ce', 'difference to ce'] == '\u2013'
    tail = cells(metric_table(summary, 'mIoU_tail'))
    assert tail['lovasz', 'mean long'] == '45.00'
    assert ('ce', 'average rank') not in tail
    assert cells(cost_table(summary))['margin', 'mean'] == '2.00'


def test_the_tool_writes_everything(places, tmp_path, capsys):
    out = tmp_path / 'summary'
    main(*places, '--out', out)
    assert f'The summary is {out / "index.html"}' in capsys.readouterr().out
    text = (out / 'report.md').read_text('utf-8')
    assert (
        'Over 3 comparisons the best average rank is that of lovasz (1.33, '
        '+1.67 to ce in the mean' in text
    )
    assert '> long/a lacks ce (seed 1), margin.' in text
    assert '](summary.png)' in text
    assert (out / 'summary.png').read_bytes().startswith(b'\x89PNG')
    with open(out / 'summary.csv', newline='') as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 15
    assert rows[0]['mIoU'] == '50'
    figures = json.loads((out / 'summary.json').read_text())
    assert figures['margin']['mIoU'] == {'short/a': 56, 'short/b': 60}


def test_nothing_to_sum_up(tmp_path):
    write_comparison(tmp_path, comparison_of({'ce': []}))
    main(tmp_path, '--out', tmp_path / 'summary')
    text = (tmp_path / 'summary' / 'report.md').read_text()
    assert 'No run has finished yet' in text


@pytest.mark.parametrize('twice', [True, False])
def test_what_cannot_be_summed_up_is_said(places, capsys, twice):
    with pytest.raises(SystemExit):
        main(places[0], places[0] if twice else 'nowhere')
    said = 'are called' if twice else 'nowhere holds no comparison: give'
    assert said in capsys.readouterr().err
