"""Student's interval against printed tables and simulation."""

import math

import numpy as np
import pytest

from mmseg_margin.report.numbers import mean_text, paired_difference

# Two-sided 95 %, as printed in every table of Student's t.
PRINTED = {1: 12.706, 2: 4.303, 4: 2.776, 9: 2.262, 29: 2.045, 120: 1.980}


@pytest.mark.parametrize(('freedom', 'printed'), PRINTED.items())
def test_interval_is_that_of_the_printed_tables(freedom, printed):
    n = freedom + 1
    values = dict(enumerate(np.linspace(1, 3, n)))
    found = paired_difference(values, dict.fromkeys(values, 0.0))
    half = printed * np.std(list(values.values()), ddof=1) / math.sqrt(n)
    assert (found.mean, found.n) == (pytest.approx(2), n)
    assert found.low == pytest.approx(2 - half, rel=5e-4)
    assert found.high == pytest.approx(2 + half, rel=5e-4)


def test_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(2000):
        baseline = dict(enumerate(rng.normal(60, 5, 4)))
        values = {s: b + rng.normal(1.5, 0.7) for s, b in baseline.items()}
        found = paired_difference(values, baseline)
        covered += found.low <= 1.5 <= found.high
    assert covered / 2000 == pytest.approx(0.95, abs=0.015)


def test_only_shared_seeds_are_compared():
    found = paired_difference({0: 1.0, 5: 9.0}, {0: 0.5, 1: 7.0})
    assert found == (0.5, None, None, 1)
    assert found.sign == 0
    assert paired_difference({0: 1.0}, {1: 1.0}) is None


@pytest.mark.parametrize(('shift', 'sign'), [(3.0, 1), (-3.0, -1), (0.0, 0)])
def test_sign_of_an_interval(shift, sign):
    baseline = dict.fromkeys(range(4), 50.0)
    values = {seed: 50 + shift + (-1) ** seed / 10 for seed in range(4)}
    assert paired_difference(values, baseline).sign == sign


def test_one_value_has_no_deviation():
    assert mean_text([3.0]) == '3.00'
    assert mean_text([1.0, 3.0]) == '2.00 ± 1.41'
