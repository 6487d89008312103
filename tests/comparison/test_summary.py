"""Several comparisons summed up, against sums done by hand."""

import csv
import json
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from mmseg_margin.comparison.report import write_report
from mmseg_margin.comparison.runs import (
    Results,
    load_results,
    mean_over_seeds,
    save_runs,
)
from mmseg_margin.comparison.summary import (
    as_csv,
    baseline_panels,
    by_label,
    cost_table,
    metric_table,
)
from mmseg_margin.report.numbers import mean_difference
from tests.comparison.invented import (
    cells,
    comparison_of,
    fit,
    make_results,
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
        seconds = {'margin': 2.0}
        runs = [
            replace(run, seconds=seconds.get(run.name, 1.0))
            for run in comparison_of(miou).runs
        ]
        out = tmp_path / label
        write_comparison(out, make_results(runs))
        places.append(f'{label}={out}')
    save_runs(runs, out / 'results.json')
    return [*places[:-1], f'{label}={out / "results.json"}']


@pytest.fixture
def results(places):
    return Results(
        load_results(by_label(places)).compared, ['lovasz', 'margin', 'ce']
    )


def main(*arguments):
    runpy.run_path(str(TOOL))['main']([str(each) for each in arguments])


def test_ranks_and_differences(results):
    # lovasz: second, first, first; ce and margin draw in short/b.
    ranks = [(2 + 1 + 1) / 3, (1 + 2.5) / 2, (3 + 2.5 + 2) / 3]
    assert results.ranks() == pytest.approx(ranks)
    # In the last only the seed that both have.
    means = mean_over_seeds(results.differences())[:, 0]
    assert means.tolist() == [3, 2, 0]
    difference = mean_difference(means)
    assert difference.mean == pytest.approx(5 / 3)
    # Deviation 1.5275, t of two degrees 4.303.
    assert difference.high == pytest.approx(5 / 3 + 4.303 * 0.88192, abs=1e-3)


def test_tables(results):
    table = cells(metric_table(results, 'mIoU'))
    assert table['margin', 'short/a'] == '56.00 ± 0.00'
    assert table['margin', 'mean short'] == '58.00'
    assert table['margin', 'mean long'] == '\u2013'
    assert table['ce', 'long/a'] == '54.00'
    assert table['lovasz', 'worst difference'] == '+0.00'
    assert table['ce', 'difference to ce'] == '\u2013'
    tail = cells(metric_table(results, 'mIoU_tail'))
    assert tail['lovasz', 'mean long'] == '45.00'
    assert ('ce', 'average rank') not in tail
    assert cells(cost_table(results))['margin', 'mean'] == '2.00'


def test_fitted_offsets_have_a_table(results):
    compared = {
        label: fit(make_results(runs), 1.0 + i).runs
        for i, (label, runs) in enumerate(results.compared.items())
        if label.startswith('short')
    }
    table = cells(
        metric_table(Results(compared, results.names), 'fitted mIoU')
    )
    assert table['ce', 'short/b'] == '62.00 ± 0.00'
    assert table['ce', 'gain by fitting'].startswith('+1.50\n')
    assert table['ce', 'smallest gain'] == '+1.00'
    assert table['lovasz', 'difference to ce'].startswith('+2.50\n')


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


def test_fitted_offsets_have_a_picture_in_both_reports(tmp_path):
    """The summary has one panel for a data set with two schedules."""
    results = fit(comparison_of({'ce': [50, 51], 'margin': [52]}))
    for label in ('short/a', 'long/a'):
        write_comparison(tmp_path / label, results)
    places = [f'{k}={tmp_path / k}' for k in ('short/a', 'long/a')]
    ((data, groups),) = baseline_panels(load_results(by_label(places)))
    assert (data, [*groups]) == ('a', ['ce, short', 'ce, long'])
    assert [run.name for run in groups['ce, long']] == ['ce', 'ce']
    main(*places, '--out', tmp_path / 'summary')
    own = write_report(tmp_path / 'short/a').parent
    for folder in (own, tmp_path / 'summary'):
        assert '](offsets.png)' in (folder / 'report.md').read_text('utf-8')
        assert (folder / 'offsets.png').is_file()


def test_names_are_no_formulas(tmp_path):
    runs = comparison_of({'ce': [50]}).runs
    label = '=HYPERLINK("http://example.org")'
    hostile = replace(runs[0], name='@SUM(1)')
    text = as_csv(Results({label: [*runs, hostile]}, ['ce', '@SUM(1)']))
    _, first, second = csv.reader(text.splitlines())
    assert first[:2] == [f"'{label}", 'ce']
    assert second[1] == "'@SUM(1)"


def test_nothing_to_sum_up(tmp_path):
    write_comparison(tmp_path, comparison_of({'ce': [None]}))
    main(tmp_path, '--out', tmp_path / 'summary')
    text = (tmp_path / 'summary' / 'report.md').read_text()
    assert 'No run has finished yet' in text


@pytest.mark.parametrize(
    ('second', 'said'),
    [
        ('other={0}', 'short/a is given twice: leave one out.'),
        ('{0}/report', 'report is given twice'),
        ('short/a={1}', "Two comparisons are called 'short/a': write LABEL="),
        ('nowhere', 'nowhere holds no comparison: give the --out folder'),
    ],
)
def test_what_cannot_be_summed_up(places, capsys, second, said):
    folders = [place.rpartition('=')[2] for place in places]
    with pytest.raises(SystemExit):
        main(places[0], second.format(*folders))
    assert said in capsys.readouterr().err
