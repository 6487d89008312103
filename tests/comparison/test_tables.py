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
    make_comparison,
    make_setup,
)


def bold(table):
    return {key for key, cell in cells(table).items() if type(cell) is Bold}


def test_overall_is_mean_and_deviation():
    comparison = make_comparison()
    table = overall_table(comparison)
    values = [
        comparison.results['ce', seed].metrics['mIoU_tail']
        for seed in (0, 1, 2)
    ]
    expected = f'{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}'
    assert cells(table)['ce', 'tail mIoU'] == expected
    assert cells(table)['ce', 'seeds'] == '3'
    assert ('margin', 'mIoU') in bold(table)
    assert ('ce', 'mIoU') not in bold(table)


def test_what_looks_equal_is_equally_best():
    table = overall_table(comparison_of({'margin': [60.001], 'ce': [59.999]}))
    assert bold(table) >= {('margin', 'mIoU'), ('ce', 'mIoU')}
    assert cells(table)['ce', 'mIoU'] == '60.00'
    assert cells(table)['ce', 'head mIoU'] == ABSENT


def test_missing_runs_count_for_nothing():
    table = overall_table(comparison_of({'margin': [61, 62], 'ce': [60.5]}))
    assert cells(table)['ce', 'mIoU'] == '60.50'
    assert cells(table)['ce', 'seeds'] == '1'


@pytest.mark.parametrize('absent', [None, float('nan')])
def test_a_class_without_iou(absent):
    comparison = make_comparison(make_setup(('margin', 'ce'), (0, 1)))
    for key, result in comparison.results.items():
        iou = list(result.class_iou)
        iou[4] = absent
        if key == ('margin', 0):
            iou[3] = absent
        comparison.results[key] = replace(result, class_iou=iou)
    table = cells(class_table(comparison))
    assert table['probe', 'margin'] == ABSENT
    assert table['probe', 'ce'] == ABSENT
    one = comparison.results['margin', 1].class_iou[3]
    assert table['claspers', 'margin'] == f'{one:.2f}'


def test_classes_by_their_share():
    table = class_table(make_comparison())
    names = [row[0] for row in table.rows]
    assert names == ['tissue', 'shaft', 'claspers', 'wrist', 'probe']
    assert cells(table)['tissue', 'share %'] == '91.291'


def test_differences_are_paired():
    table = difference_table(
        comparison_of({'ce': [50, 60, 70], 'margin': [52, 62, 72]})
    )
    # The seeds differ by ten points, the pairs by two without exception.
    assert cells(table)['margin', 'mIoU'] == '+2.00\n[+2.00, +2.00]'
    assert bold(table) == {('margin', 'mIoU'), ('margin', 'tail mIoU')}
    assert cells(table)['margin', 'head mIoU'] == ABSENT


def test_one_seed_has_no_interval():
    table = difference_table(comparison_of({'ce': [50], 'margin': [52]}))
    assert cells(table)['margin', 'mIoU'] == '+2.00'
    assert bold(table) == set()


@pytest.mark.parametrize('miou', [{'margin': [5]}, {'margin': [5], 'ce': []}])
def test_no_baseline_no_differences(miou):
    assert difference_table(comparison_of(miou)) is None


def test_cost_is_relative_to_the_baseline():
    comparison = make_comparison(make_setup(('ce', 'margin', 'focal')))
    seconds = {'ce': (2.0, 1.0, 9.0), 'margin': (3, 3, 3), 'focal': (0, 0, 0)}
    for (name, seed), result in comparison.results.items():
        comparison.results[name, seed] = replace(
            result,
            seconds_per_iteration=seconds[name][seed],
            peak_memory_mib=1000.0 + seed,
        )
    ce, margin, focal = cost_table(comparison).rows
    assert ce == ['ce', '2', '1.00', '1,002', '1.00']
    assert margin[1:3] == ['3', '1.50']
    assert focal[1:3] == [ABSENT, ABSENT]
