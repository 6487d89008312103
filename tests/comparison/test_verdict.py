"""The sentence on top is plain about wins, losses and what is unknown."""

from dataclasses import replace

import pytest

from mmseg_margin.comparison.results import Comparison
from mmseg_margin.comparison.verdict import missing_runs, verdict
from tests.comparison.invented import make_result, make_setup


def comparison_of(**miou):
    """Objectives by keyword, each with the mIoU of seeds 0, 1, ..."""
    seeds = range(max(map(len, miou.values())))
    setup = make_setup(tuple(miou), tuple(seeds))
    results = {
        (name, seed): replace(
            make_result(setup, name, seed), metrics={'mIoU': value}
        )
        for name, values in miou.items()
        for seed, value in enumerate(values)
        if value is not None
    }
    return Comparison(setup, results)


def test_margin_wins_for_certain():
    text = verdict(
        comparison_of(
            ce=[60.0, 61.0, 62.0],
            margin=[64.0, 65.2, 66.1],
            lovasz=[62.0, 63.0, 64.0],
        )
    )
    assert text.startswith(
        'margin has the highest mean mIoU (65.10), 2.10 above lovasz (63.00);'
    )
    assert '[+3.85, +4.35] over 3 seeds' in text
    assert text.endswith('so margin is better than ce here.')


def test_margin_wins_perhaps():
    text = verdict(
        comparison_of(ce=[60.0, 61.0, 62.0], margin=[60.0, 63.0, 61.5])
    )
    assert 'margin has the highest' in text
    assert 'which covers 0, so neither is shown to be better' in text


def test_margin_loses_to_ce():
    text = verdict(comparison_of(margin=[58.0, 59.1], ce=[60.0, 61.0]))
    assert text.startswith(
        'ce has the highest mean mIoU (60.50), 1.95 above margin (58.55);'
    )
    assert 'of margin to ce is [\u22122.59, \u22121.31]' in text
    assert text.endswith('so margin is worse than ce here.')


def test_margin_is_named_even_when_far_behind():
    text = verdict(
        comparison_of(ce=[60.0], focal=[62.0], lovasz=[63.0], margin=[50.0])
    )
    assert 'lovasz has the highest mean mIoU (63.00)' in text
    assert '; margin is number 4 of 4 (50.00);' in text
    assert 'margin to ce is \u221210.00 with a single seed' in text
    assert 'no interval and may be chance' in text


def test_best_of_several_margin_objectives_is_compared():
    text = verdict(
        comparison_of(
            **{'margin': [60.0], 'margin:tau=20': [64.0], 'ce': [61.0]}
        )
    )
    assert 'difference of margin:tau=20 to ce is +3.00' in text


def test_without_margin_the_best_is_compared():
    text = verdict(comparison_of(ce=[60.0, 60.0], focal=[59.0, 59.5]))
    assert 'paired difference of focal to ce' in text


@pytest.mark.parametrize('ce', [{}, {'ce': [None, 60.0]}])
def test_nothing_to_pair_with(ce):
    text = verdict(comparison_of(margin=[61.0], lovasz=[60.0], **ce))
    assert 'no seed has been run with both margin and ce' in text


def test_a_single_objective_wins_nothing():
    text = verdict(comparison_of(margin=[61.0]))
    assert 'highest' not in text
    assert 'nothing to compare it with' in text


def test_no_result_at_all():
    comparison = comparison_of(margin=[None], ce=[None])
    assert verdict(comparison).startswith('No run has finished')


def test_nan_is_no_result():
    text = verdict(comparison_of(margin=[float('nan')], ce=[60.0]))
    assert text.startswith('ce has a mean mIoU of 60.00; no other')


def test_missing_runs_are_named():
    comparison = comparison_of(margin=[61.0, None, None], ce=[60.0, 60.0, 60])
    (warning,) = missing_runs(comparison)
    assert 'of 6 runs, 2 have no result (margin: seed 1, 2)' in warning
    assert missing_runs(comparison_of(ce=[60.0])) == []
