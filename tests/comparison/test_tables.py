"""Tables of reports and summaries, against sums done by hand."""

import csv
from dataclasses import replace

import pytest

from mmseg_margin.comparison import tables
from mmseg_margin.comparison.runs import Results
from mmseg_margin.report.numbers import ABSENT
from mmseg_margin.report.pages import Bold
from tests.comparison import invented
from tests.comparison.test_runs import MIOU

ROUNDED = {'margin': [60.001], 'ce': [59.999]}
TWO_SEEDS = {'margin': [61, 62], 'ce': [60.5]}
UNFINISHED = {'margin': [61], 'ce': [None]}
# The mIoU of the seeds, a cell of a table, its text, and whether it is bold.
OVERALL = [
    # Equal after rounding is equally bold.
    (ROUNDED, 'margin', 'mIoU', '60.00', True),
    (ROUNDED, 'ce', 'mIoU', '60.00', True),
    # Missing runs are left out, and nothing beats an objective without any.
    (TWO_SEEDS, 'margin', 'tail mIoU', '51.50 ± 0.71', True),
    (TWO_SEEDS, 'ce', 'mIoU', '60.50', False),
    (TWO_SEEDS, 'ce', 'seeds', '1', False),
    (UNFINISHED, 'margin', 'mIoU', '61.00', False),
    (UNFINISHED, 'ce', 'mIoU', ABSENT, False),
    (UNFINISHED, 'ce', 'seeds', '0', False),
]


def cells(table):
    """The cells of a table by the names of row and column."""
    return {
        (row[0], column): cell
        for row in table.rows
        for column, cell in zip(table.header, row, strict=True)
    }


def is_bold(cell):
    return type(cell) is Bold


@pytest.mark.parametrize(('miou', 'row', 'column', 'text', 'bold'), OVERALL)
def test_overall(miou, row, column, text, bold):
    cell = cells(tables.overall_table(invented.comparison_of(miou)))[
        row, column
    ]
    assert (cell, is_bold(cell)) == (text, bold)


@pytest.mark.parametrize(
    ('ce', 'margin', 'text', 'bold'),
    [
        # The seeds differ by ten points, the pairs always by two.
        ([50, 60, 70], [52, 62, 72], '+2.00\n[+2.00, +2.00]', True),
        # One seed has no interval.
        ([50], [52], '+2.00', False),
    ],
)
def test_differences_are_paired(ce, margin, text, bold):
    table = tables.difference_table(
        invented.comparison_of({'ce': ce, 'margin': margin})
    )
    cell = cells(table)['margin', 'tail mIoU']
    assert (cell, is_bold(cell)) == (text, bold)


@pytest.mark.parametrize(
    'miou', [{'margin': [5]}, {'margin': [5], 'ce': [None]}, {'ce': [5]}]
)
def test_no_baseline_no_differences(miou):
    assert tables.difference_table(invented.comparison_of(miou)) is None


@pytest.mark.parametrize('absent', [None, float('nan')])
def test_a_class_without_iou(absent):
    results = invented.make_comparison(('margin', 'ce'), (0, 1))
    for run in results.runs:
        run.class_iou[2:] = [0.0, 50.0, absent]
    results.runs[0].class_iou[3] = absent
    table = tables.class_table(results)
    names = [row[0] for row in table.rows]
    assert names == ['tissue', 'shaft', 'claspers', 'wrist', 'probe']
    found = cells(table)
    assert found['tissue', 'share %'] == '91.291'
    assert found['probe', 'margin'] == found['probe', 'ce'] == ABSENT
    assert found['claspers', 'margin'] == '50.00'
    # A class that is never predicted has an IoU.
    assert found['wrist', 'ce'] == '0.00 ± 0.00'


def test_fitted_offsets_have_columns_of_their_own():
    results = invented.fit(
        invented.comparison_of({'ce': [50, 60], 'margin': [52, 62]}), 1.5
    )
    overall = cells(tables.overall_table(results))
    assert overall['ce', 'mIoU with fitted offsets'] == '56.50 ± 7.07'
    assert overall['ce', 'gain by fitting'] == '+1.50\n[+1.50, +1.50]'
    differences = cells(tables.difference_table(results))
    column = 'mIoU with fitted offsets'
    assert differences['margin', column] == '+2.00\n[+2.00, +2.00]'
    table = cells(tables.class_table(results))
    assert table['probe', 'ce'] == '48.00 ± 7.07'
    assert table['probe', 'ce, fitted'] == '49.50 ± 7.07'


def test_cost_is_relative_to_the_baseline():
    seconds = {'ce': (2, 1, 9), 'margin': (3, 3, 3), 'focal': (None,) * 3}
    runs = [
        replace(r, seconds=seconds[r.name][r.seed], memory=1000.0 + r.seed)
        for r in invented.make_comparison(seconds).runs
    ]
    ce, margin, focal = tables.cost_table(invented.make_results(runs)).rows
    assert [*ce] == ['ce', '2', '1.00', '1,002', '1.00']
    assert [*margin[1:3]] == ['3', '1.50']
    assert [*focal[1:3]] == [ABSENT, ABSENT]


@pytest.mark.parametrize(
    ('name', 'counts', 'row', 'said'),
    [
        # A class is absent, or the only one, which has no picture.
        ('ce', [5, 0, 7, 1, 1], ['shaft', '0', '0.0000', ABSENT], 'default'),
        ('ce', [0, 5, 0, 0, 0], ['shaft', '5', '100.0000', ABSENT], 'for the'),
        # 4 * sqrt(12) / 4
        (
            'margin:tau=4',
            [8, 4, 1, 1, 2],
            ['shaft', '4', '25.0000', '3.464'],
            'of margin:tau=4 (tau = 4, upsilon = 1)',
        ),
    ],
)
def test_margins(tmp_path, name, counts, row, said):
    results = invented.comparison_of({name: [None]}, class_counts=counts)
    table, *pictures = tables.margin_blocks(results, tmp_path)
    assert row in [cells[:4] for cells in table.rows]
    assert said in table.caption
    assert len(pictures) == (counts[0] > 0)


@pytest.fixture
def several():
    seconds = {'margin': 2.0}
    compared = {
        label: [
            replace(run, seconds=seconds.get(run.name, 1.0))
            for run in invented.comparison_of(miou).runs
        ]
        for label, miou in MIOU.items()
    }
    return Results(compared, ['lovasz', 'margin', 'ce'])


def test_tables_of_several_comparisons(several):
    table = cells(tables.metric_table(several, 'mIoU'))
    assert table['margin', 'short/a'] == '56.00 ± 0.00'
    assert table['margin', 'mean short'] == '58.00'
    assert table['margin', 'mean long'] == ABSENT
    assert table['ce', 'long/a'] == '54.00'
    assert table['lovasz', 'average rank'] == '1.33'
    assert table['lovasz', 'worst difference'] == '+0.00'
    assert table['ce', 'difference to ce'] == ABSENT
    tail = cells(tables.metric_table(several, 'mIoU_tail'))
    assert tail['lovasz', 'mean long'] == '45.00'
    assert ('ce', 'average rank') not in tail
    assert cells(tables.time_table(several))['margin', 'mean'] == '2.00'


def test_fitted_offsets_of_several_comparisons(several):
    compared = {
        label: invented.fit(
            invented.make_results(several.compared[label]), gain
        ).runs
        for label, gain in (('short/a', 1.0), ('short/b', 2.0))
    }
    results = Results(compared, several.names)
    table = cells(tables.metric_table(results, 'fitted mIoU'))
    assert table['ce', 'short/b'] == '62.00 ± 0.00'
    assert table['ce', 'gain by fitting'].startswith('+1.50\n')
    assert table['ce', 'smallest gain'] == '+1.00'
    assert table['lovasz', 'difference to ce'].startswith('+2.50\n')
    gains = tables.as_dict(results)['ce']['gain_by_fitting']
    assert gains == {'short/a': 1.0, 'short/b': 2.0}


def test_figures_of_several_comparisons(several):
    found = tables.as_dict(several)
    assert [*found] == several.names
    assert found['margin']['mIoU'] == {'short/a': 56, 'short/b': 60}
    assert found['margin']['cost'] == {'short/a': 2.0, 'short/b': 2.0}
    assert found['lovasz']['rank'] == pytest.approx(4 / 3)
    difference = found['lovasz']['mIoU_difference']
    assert (difference['mean'], difference['n']) == (pytest.approx(5 / 3), 3)
    first, *rows = csv.DictReader(tables.as_csv(several).splitlines())
    assert len(rows) == 14
    assert (first['comparison'], first['mIoU']) == ('short/a', '50')


def test_names_are_no_formulas():
    runs = invented.comparison_of({'ce': [50]}).runs
    label = '=HYPERLINK("http://example.org")'
    hostile = replace(runs[0], name='@SUM(1)')
    text = tables.as_csv(Results({label: [*runs, hostile]}, ['ce', '@SUM(1)']))
    _, first, second = csv.reader(text.splitlines())
    assert first[:2] == [f"'{label}", 'ce']
    assert second[1] == "'@SUM(1)"
