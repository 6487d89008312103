"""Curves are averaged over the runs that have a point."""

import numpy as np

from mmseg_margin.comparison.curves import average_curve, draw_curves
from mmseg_margin.comparison.results import Comparison
from mmseg_margin.report.pictures import colours_of
from tests.comparison.invented import make_result, make_setup


def test_average_of_runs_of_different_length():
    curves = [[(10, 1.0), (20, 4.0)], [(10, 3.0)]]
    iterations, mean, deviation = average_curve(curves)
    assert iterations.tolist() == [10, 20]
    assert mean.tolist() == [2.0, 4.0]
    np.testing.assert_allclose(deviation, [2**0.5, 0.0])


def test_a_run_that_diverged_leaves_a_gap():
    curves = [[(10, 1.0), (20, float('nan'))], [(20, 3.0)]]
    _, mean, _ = average_curve(curves)
    assert mean[0] == 1.0
    assert np.isnan(mean[1])


def test_only_what_has_curves_is_drawn(tmp_path):
    setup = make_setup(('margin', 'ce'), (0,))
    comparison = Comparison(setup, {('ce', 0): make_result(setup, 'ce', 0)})
    together, single = draw_curves(comparison, tmp_path)
    assert together.stat().st_size > 1000
    assert list(single) == ['ce']
    assert draw_curves(Comparison(setup, {}), tmp_path) is None


def test_an_objective_keeps_its_colour():
    alone = colours_of(['margin'])['margin']
    names = ['ce', 'margin:tau=20', 'margin', 'margin:tau=5']
    colours = colours_of(names)
    assert colours['margin'] == alone
    assert len(set(colours.values())) == len(names)
