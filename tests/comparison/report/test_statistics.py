"""Student's interval against integration, tables and simulation."""

import math

import numpy as np
import pytest

from mmseg_margin.comparison.report.statistics import (
    deviation,
    paired_difference,
    student_t_quantile,
)

# Two-sided 95 %, as printed in every table of Student's t.
PRINTED = {1: 12.706, 2: 4.303, 4: 2.776, 9: 2.262, 29: 2.045, 120: 1.980}


def probability_by_integration(t, freedom):
    """``P(|T| <= t)`` from the density, by Simpson's rule."""
    x = np.linspace(0, t, 20_001)
    log_scale = (
        math.lgamma((freedom + 1) / 2)
        - math.lgamma(freedom / 2)
        - math.log(freedom * math.pi) / 2
    )
    y = np.exp(log_scale - (freedom + 1) / 2 * np.log1p(x**2 / freedom))
    weights = np.ones_like(x)
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    return 2 * (weights * y).sum() * (x[1] - x[0]) / 3


@pytest.mark.parametrize('freedom', [*range(1, 41), 99, 100])
@pytest.mark.parametrize('confidence', [0.5, 0.95, 0.99])
def test_quantile_holds_its_probability(freedom, confidence):
    t = student_t_quantile(freedom, confidence)
    assert probability_by_integration(t, freedom) == pytest.approx(
        confidence, abs=1e-8
    )


@pytest.mark.parametrize(('freedom', 'printed'), PRINTED.items())
def test_quantile_is_that_of_the_printed_tables(freedom, printed):
    assert student_t_quantile(freedom) == pytest.approx(printed, abs=5e-4)


def test_difference_worked_out_by_hand():
    # Differences 1, 2 and 3: mean 2, deviation 1, t of 2 degrees 4.303.
    found = paired_difference(
        {0: 11.0, 1: 22.0, 2: 33.0}, {2: 30.0, 1: 20.0, 0: 10.0}
    )
    half = 4.303 / math.sqrt(3)
    assert found.mean == pytest.approx(2)
    assert found.low == pytest.approx(2 - half, abs=1e-3)
    assert found.high == pytest.approx(2 + half, abs=1e-3)
    assert found.n == 3
    assert found.sign == 0


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
    assert deviation([3.0]) is None
    assert deviation([1.0, 3.0]) == pytest.approx(math.sqrt(2))
