"""Curves are averaged, and the mosaic shows where objectives differ most."""

import re
import shutil

import numpy as np
import pytest
from PIL import Image

from mmseg_margin.comparison.figures import (
    average_curve,
    disagreement,
    draw_curves,
    draw_examples,
)
from mmseg_margin.comparison.records import PREDICTIONS, run_folder
from mmseg_margin.comparison.results import Comparison
from mmseg_margin.report.pictures import colours_of
from tests.comparison.invented import (
    make_comparison,
    make_setup,
    write_samples,
)


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


def test_disagreement_counts_labelled_pixels():
    truth = np.array([0, 1, 255, 1, 0])
    predictions = np.array([[0, 1, 0, 1, 2], [0, 1, 1, 2, 2], [1, 1, 2, 1, 2]])
    assert disagreement(predictions, truth) == pytest.approx(2 / 4)
    assert disagreement(predictions[:1], truth) == 0
    assert disagreement(predictions, np.full(5, 255)) == 0


def test_most_different_images_come_first(tmp_path):
    setup = make_setup(('margin', 'ce'))
    samples = write_samples(tmp_path, setup, n=4)
    comparison = Comparison(setup, {})
    drawn = draw_examples(comparison, tmp_path, samples, tmp_path, rows=2)
    assert re.fullmatch(r'frame003 \(.*%\), frame002 \(.*%\)', drawn['images'])
    assert drawn['seed'] == 0
    with Image.open(drawn['file']) as image:
        assert image.width > 4 * 250


def test_what_is_missing_is_left_out(tmp_path):
    setup = make_setup(('margin', 'ce', 'lovasz'))
    samples = write_samples(tmp_path, setup, n=2)
    comparison = Comparison(setup, {})
    # One objective without any, one without the second image.
    shutil.rmtree(run_folder(tmp_path, 'lovasz', 0) / PREDICTIONS)
    (run_folder(tmp_path, 'ce', 0) / PREDICTIONS / 'frame001.png').unlink()
    drawn = draw_examples(comparison, tmp_path, samples, tmp_path)
    assert 'frame000' in drawn['images']
    assert 'frame001' not in drawn['images']
    assert draw_examples(comparison, tmp_path, [], tmp_path) is None
