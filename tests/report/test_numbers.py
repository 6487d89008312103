"""Student's interval against printed tables and simulation."""

import math

import numpy as np
import pytest

from mmseg_margin.report.numbers import (
    difference_cells,
    mean_cells,
    mean_difference,
)
from mmseg_margin.report.pages import Bold

# Two-sided 95 %, as printed in every table of Student's t.
PRINTED = {1: 12.706, 2: 4.303, 4: 2.776, 9: 2.262, 29: 2.045, 120: 1.980}


@pytest.mark.parametrize(('freedom', 'printed'), PRINTED.items())
def test_interval_is_that_of_the_printed_tables(freedom, printed):
    n = freedom + 1
    values = np.linspace(1, 3, n)
    found = mean_difference([*values, math.nan])
    half = printed * np.std(values, ddof=1) / math.sqrt(n)
    assert (found.mean, found.n) == (pytest.approx(2), n)
    assert found.low == pytest.approx(2 - half, rel=5e-4)
    assert found.high == pytest.approx(2 + half, rel=5e-4)


def test_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(2000):
        found = mean_difference(rng.normal(1.5, 0.7, 4))
        covered += found.low <= 1.5 <= found.high
    assert covered / 2000 == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize(('shift', 'sign'), [(3.0, 1), (-3.0, -1), (0.0, 0)])
def test_sign_of_an_interval(shift, sign):
    values = [shift + (-1) ** seed / 10 for seed in range(4)]
    assert mean_difference(values).sign == sign


def test_too_few_values_for_an_interval():
    single = mean_difference([0.5, math.nan])
    assert (single.mean, single.n, single.sign) == (0.5, 1, 0)
    assert str(single) == '+0.50'
    # The interval of two equal values excludes 0 and means nothing.
    assert mean_difference([1, 1]).sign == 0
    assert mean_difference([1, 1, 1]).sign == 1
    assert mean_difference([math.nan]) is None


def test_cells():
    cells = mean_cells([[3.0, math.nan], [1.0, 3.0], []])
    assert cells == ['3.00', '2.00 ± 1.41', '\u2013']
    cells = difference_cells([[1, 1, 1.1], [-1, 1, 1.1], []])
    assert cells[0] == '+1.03 [+0.89, +1.18]'
    assert [isinstance(cell, Bold) for cell in cells] == [1, 0, 0]
    assert cells[2] == '\u2013'
