"""Curves are averaged over the runs that have a point."""

import numpy as np

from mmseg_margin.comparison.report.colours import colours_of
from mmseg_margin.comparison.report.comparison import Comparison
from mmseg_margin.comparison.report.curves import (
    average_curve,
    curves_section,
)
from mmseg_margin.comparison.report.document import Picture
from tests.comparison.report.invented import make_result, make_study


def test_average_of_runs_of_different_length():
    curve = average_curve([[(10, 1.0), (20, 4.0)], [(10, 3.0)]])
    assert curve.iterations.tolist() == [10, 20]
    assert curve.mean.tolist() == [2.0, 4.0]
    np.testing.assert_allclose(curve.deviation, [2**0.5, 0.0])


def test_a_run_that_diverged_leaves_a_gap():
    curve = average_curve([[(10, 1.0), (20, float('nan'))], [(20, 3.0)]])
    assert curve.mean[0] == 1.0
    assert np.isnan(curve.mean[1])


def test_only_what_has_curves_is_drawn(tmp_path):
    study = make_study(('margin', 'ce'), (0,))
    comparison = Comparison(study, {('ce', 0): make_result(study, 'ce', 0)})
    _, together, gallery = curves_section(comparison, tmp_path).blocks
    assert isinstance(together, Picture)
    assert together.file.stat().st_size > 1000
    assert [p.caption for p in gallery.pictures] == ['ce: mIoU and loss.']


def test_no_curves_at_all(tmp_path):
    section = curves_section(Comparison(make_study(), {}), tmp_path)
    assert section.blocks == ['No run has recorded any curves.']


def test_an_objective_keeps_its_colour():
    alone = colours_of(['margin'])['margin']
    names = ['ce', 'margin:tau=20', 'margin', 'margin:tau=5']
    colours = colours_of(names)
    assert colours['margin'] == alone
    assert len(set(colours.values())) == len(names)
