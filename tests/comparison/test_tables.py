"""The tables hold what the runs hold."""

from dataclasses import replace

import numpy as np
import pytest

from mmseg_margin.comparison.results import Comparison
from mmseg_margin.comparison.tables import (
    class_table,
    cost_table,
    difference_table,
    overall_table,
)
from mmseg_margin.report.numbers import ABSENT
from mmseg_margin.report.pages import Bold
from tests.comparison.invented import cells, make_result, make_setup


def full_comparison(**fields):
    setup = make_setup(**fields)
    results = {
        (name, seed): make_result(setup, name, seed)
        for name, seeds in setup.seeds.items()
        for seed in seeds
    }
    return Comparison(setup, results)


def without(comparison, *runs):
    left = {k: v for k, v in comparison.results.items() if k not in runs}
    return Comparison(comparison.setup, left)


def bold(table):
    return {key for key, cell in cells(table).items() if type(cell) is Bold}


def test_overall_is_mean_and_deviation():
    comparison = full_comparison()
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
    comparison = full_comparison(losses=('margin', 'ce'), seeds=(0,))
    for name, miou in (('margin', 60.001), ('ce', 59.999)):
        result = comparison.results[name, 0]
        comparison.results[name, 0] = replace(result, metrics={'mIoU': miou})
    table = overall_table(comparison)
    assert bold(table) == {('margin', 'mIoU'), ('ce', 'mIoU')}
    assert cells(table)['ce', 'mIoU'] == '60.00'
    assert cells(table)['ce', 'head mIoU'] == ABSENT


def test_missing_runs_count_for_nothing():
    comparison = without(full_comparison(), ('ce', 1), ('ce', 2))
    table = cells(overall_table(comparison))
    only = comparison.results['ce', 0].metrics['mIoU']
    assert table['ce', 'mIoU'] == f'{only:.2f}'
    assert table['ce', 'seeds'] == '1'


@pytest.mark.parametrize('absent', [None, float('nan')])
def test_a_class_without_iou(absent):
    comparison = full_comparison(losses=('margin', 'ce'), seeds=(0, 1))
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
    table = class_table(full_comparison())
    names = [row[0] for row in table.rows]
    assert names == ['tissue', 'shaft', 'claspers', 'wrist', 'probe']
    assert cells(table)['tissue', 'share %'] == '91.291'


def test_differences_are_paired():
    comparison = full_comparison(losses=('ce', 'margin'))
    for seed in (0, 1, 2):
        for name, gain in (('ce', 0.0), ('margin', 2.0)):
            result = comparison.results[name, seed]
            miou = 50 + 10 * seed + gain
            comparison.results[name, seed] = replace(
                result, metrics={'mIoU': miou}
            )
    table = difference_table(comparison)
    # The seeds differ by ten points, the pairs by two without exception.
    assert cells(table)['margin', 'mIoU'] == '+2.00\n[+2.00, +2.00]'
    assert bold(table) == {('margin', 'mIoU')}
    assert cells(table)['margin', 'tail mIoU'] == ABSENT


def test_one_seed_has_no_interval():
    table = difference_table(full_comparison(seeds=(7,)))
    assert '[' not in cells(table)['margin', 'mIoU']
    assert bold(table) == set()


def test_no_baseline_no_differences():
    assert difference_table(full_comparison(losses=('margin',))) is None
    unfinished = without(
        full_comparison(losses=('margin', 'ce'), seeds=(0,)), ('ce', 0)
    )
    assert difference_table(unfinished) is None


def test_cost_is_relative_to_the_baseline():
    comparison = full_comparison(losses=('ce', 'margin', 'focal'))
    seconds = {'ce': (2.0, 1.0, 9.0), 'margin': (3, 3, 3), 'focal': (0, 0, 0)}
    for (name, seed), result in comparison.results.items():
        comparison.results[name, seed] = replace(
            result,
            seconds_per_iteration=seconds[name][seed],
            peak_memory_mib=1000.0 + seed,
        )
    _, ce, ce_ratio, memory, _ = cost_table(comparison).rows[0]
    assert (ce, ce_ratio, memory) == ('2', '1.00', '1,002')
    assert cost_table(comparison).rows[1][1:3] == ['3', '1.50']
    assert cost_table(comparison).rows[2][1:3] == [ABSENT, ABSENT]
