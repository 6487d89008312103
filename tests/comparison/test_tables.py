"""The tables hold what the runs hold."""

from dataclasses import replace

import numpy as np
import pytest

from mmseg_margin.comparison.tables import (
    class_table,
    cost_table,
    difference_table,
    overall_table,
)
from mmseg_margin.report.numbers import ABSENT
from mmseg_margin.report.pages import Bold
from tests.comparison.invented import (
    cells,
    comparison_of,
    fit,
    make_comparison,
    make_results,
)


def bold(table):
    return {key for key, cell in cells(table).items() if type(cell) is Bold}


def test_overall_is_mean_and_deviation():
    results = make_comparison()
    table = overall_table(results)
    values = [
        run.metrics['mIoU_tail'] for run in results.runs if run.name == 'ce'
    ]
    expected = f'{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}'
    assert cells(table)['ce', 'tail mIoU'] == expected
    assert cells(table)['ce', 'seeds'] == '3'
    assert ('margin', 'mIoU') in bold(table)
    assert ('ce', 'mIoU') not in bold(table)


def test_equal_after_rounding_is_equally_bold():
    table = overall_table(comparison_of({'margin': [60.001], 'ce': [59.999]}))
    assert bold(table) >= {('margin', 'mIoU'), ('ce', 'mIoU')}
    assert cells(table)['ce', 'mIoU'] == '60.00'
    assert cells(table)['ce', 'head mIoU'] == ABSENT


def test_missing_runs_are_left_out():
    table = overall_table(comparison_of({'margin': [61, 62], 'ce': [60.5]}))
    assert cells(table)['margin', 'mIoU'] == '61.50 ± 0.71'
    assert cells(table)['ce', 'mIoU'] == '60.50'
    table = overall_table(comparison_of({'margin': [61], 'ce': [None]}))
    assert cells(table)['ce', 'mIoU'] == ABSENT
    assert cells(table)['ce', 'seeds'] == '0'
    assert bold(table) == set()


@pytest.mark.parametrize('absent', [None, float('nan')])
def test_a_class_without_iou(absent):
    results = make_comparison(('margin', 'ce'), (0, 1))
    for run in results.runs:
        run.class_iou[4] = absent
    results.runs[0].class_iou[3] = absent
    table = cells(class_table(results))
    assert table['probe', 'margin'] == ABSENT
    assert table['probe', 'ce'] == ABSENT
    one = results.runs[2].class_iou[3]
    assert table['claspers', 'margin'] == f'{one:.2f}'


def test_a_class_that_is_never_predicted_counts_as_zero():
    results = make_comparison(('ce',), (0, 1))
    for run in results.runs:
        run.class_iou[4] = 0.0
    assert cells(class_table(results))['probe', 'ce'] == '0.00 ± 0.00'


def test_classes_by_their_fraction():
    table = class_table(make_comparison())
    names = [row[0] for row in table.rows]
    assert names == ['tissue', 'shaft', 'claspers', 'wrist', 'probe']
    assert cells(table)['tissue', 'share %'] == '91.291'


def test_fitted_offsets_have_columns_of_their_own():
    results = fit(comparison_of({'ce': [50, 60], 'margin': [52, 62]}), 1.5)
    overall = cells(overall_table(results))
    assert overall['ce', 'mIoU with fitted offsets'] == '56.50 ± 7.07'
    assert overall['ce', 'gain by fitting'] == '+1.50\n[+1.50, +1.50]'
    differences = cells(difference_table(results))
    column = 'mIoU with fitted offsets'
    assert differences['margin', column] == '+2.00\n[+2.00, +2.00]'
    table = cells(class_table(results))
    assert table['probe', 'ce'] == '50.00 ± 0.00'
    assert table['probe', 'ce, fitted'] == '51.50 ± 0.00'


def test_differences_are_paired():
    table = difference_table(
        comparison_of({'ce': [50, 60, 70], 'margin': [52, 62, 72]})
    )
    # The seeds differ by ten points, the pairs always by two.
    assert cells(table)['margin', 'mIoU'] == '+2.00\n[+2.00, +2.00]'
    assert bold(table) == {('margin', 'mIoU'), ('margin', 'tail mIoU')}
    assert cells(table)['margin', 'head mIoU'] == ABSENT


def test_one_seed_has_no_interval():
    table = difference_table(comparison_of({'ce': [50], 'margin': [52]}))
    assert cells(table)['margin', 'mIoU'] == '+2.00'
    assert bold(table) == set()


@pytest.mark.parametrize(
    'miou', [{'margin': [5]}, {'margin': [5], 'ce': [None]}, {'ce': [5]}]
)
def test_no_baseline_no_differences(miou):
    assert difference_table(comparison_of(miou)) is None


def test_cost_is_relative_to_the_baseline():
    seconds = {'ce': (2, 1, 9), 'margin': (3, 3, 3), 'focal': (None,) * 3}
    results = make_comparison(seconds)
    results = make_results(
        [
            replace(
                run,
                seconds=seconds[run.name][run.seed],
                memory=1000.0 + run.seed,
            )
            for run in results.runs
        ]
    )
    ce, margin, focal = cost_table(results).rows
    assert [*ce] == ['ce', '2', '1.00', '1,002', '1.00']
    assert [*margin[1:3]] == ['3', '1.50']
    assert [*focal[1:3]] == [ABSENT, ABSENT]
