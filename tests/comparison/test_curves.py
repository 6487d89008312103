"""Curves are averaged over the runs that have a point."""

import numpy as np

from mmseg_margin.comparison.curves import average_curve, draw_curves
from mmseg_margin.report.pictures import colours_of
from tests.comparison.invented import make_comparison, make_setup


def test_average_of_runs_of_different_length():
    iterations, mean, deviation = average_curve(
        [[(10, 1.0), (20, 4.0)], [(10, 3.0)]]
    )
    assert iterations.tolist() == [10, 20]
    assert mean.tolist() == [2.0, 4.0]
    np.testing.assert_allclose(deviation, [2**0.5, 0.0])


def test_a_run_that_diverged_leaves_a_gap():
    nan = float('nan')
    _, mean, _ = average_curve([[(10, 1.0), (20, nan)], [(20, 3.0)]])
    np.testing.assert_equal(mean, [1.0, nan])


def test_only_what_has_curves_is_drawn(tmp_path):
    setup = make_setup(('margin', 'ce'), (0,))
    comparison = make_comparison(setup, skip=[('margin', 0)])
    together, single = draw_curves(comparison, tmp_path)
    assert together.stat().st_size > 1000
    assert list(single) == ['ce']
    comparison.results.clear()
    assert draw_curves(comparison, tmp_path) is None


def test_an_objective_keeps_its_colour():
    alone = colours_of(['margin'])['margin']
    names = ['ce', 'margin:tau=20', 'margin', 'margin:tau=5']
    colours = colours_of(names)
    assert colours['margin'] == alone
    assert len(set(colours.values())) == len(names)
