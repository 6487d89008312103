"""Curves are averaged, and the mosaic shows where objectives differ most."""

import re
import shutil

import numpy as np
import pytest
from PIL import Image

from mmseg_margin.comparison.figures import (
    average_curve,
    colours_of,
    curve_blocks,
    disagreement,
    draw_examples,
)
from mmseg_margin.comparison.records import (
    FITTED_PREDICTIONS,
    PREDICTIONS,
    run_folder,
)
from mmseg_margin.report.pictures import title_lines
from tests.comparison.invented import make_comparison, write_samples


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


def test_only_runs_with_curves_are_drawn(tmp_path):
    results = make_comparison(('margin', 'ce'), (0,), skip=[('margin', 0)])
    _, together, single = curve_blocks(results, tmp_path)
    assert together.file.stat().st_size > 1000
    assert [each.caption for each in single] == ['ce: mIoU and loss.']
    results.runs.pop()
    text = 'No run has recorded any curves.'
    assert curve_blocks(results, tmp_path) == [text]


def test_parts_of_a_loss_have_a_panel(tmp_path):
    heights = []
    for parts in ({}, {'decode.jaccard': [(10, 1.0)], 'decode.ce': []}):
        results = make_comparison(('margin',), (0,))
        results.runs[0].curves.update(parts)
        *_, (single,) = curve_blocks(results, tmp_path)
        with Image.open(single.file) as image:
            heights.append(image.height)
    assert heights[1] == pytest.approx(1.5 * heights[0], rel=0.01)


def test_parts_of_the_decode_head_only(tmp_path):
    pictures = []
    for head in ('decode', 'aux'):
        results = make_comparison(('margin',), (0,))
        results.runs[0].curves['decode.jaccard'] = [(10, 1.0)]
        results.runs[0].curves[f'{head}.jaccard'] = [(10, 1.0)]
        *_, (single,) = curve_blocks(results, tmp_path)
        pictures.append(single.file.read_bytes())
    assert pictures[0] == pictures[1]


def test_a_long_name_is_cut_off():
    weights = ','.join(['1.0'] * 150)
    lines = title_lines(f'ce:class_weight=[{weights}]').splitlines()
    assert (len(lines), lines[-1]) == (6, '...')


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
    results = make_comparison(('margin', 'ce'))
    samples = write_samples(tmp_path, results, n=4)
    drawn = draw_examples(results, tmp_path, samples, tmp_path, rows=2)
    assert 'with seed 0' in drawn.caption
    assert re.search(r': frame003 \(.*%\), frame002 \(.*%\)\.', drawn.caption)
    with Image.open(drawn.file) as image:
        width = image.width
    assert width > 4 * 250
    write_samples(tmp_path, results, 4, FITTED_PREDICTIONS)
    drawn = draw_examples(results, tmp_path, samples, tmp_path, rows=2)
    with Image.open(drawn.file) as image:
        assert image.width == pytest.approx(width * 6 / 4, rel=0.1)


def test_missing_predictions_are_left_out(tmp_path):
    results = make_comparison(('margin', 'ce', 'lovasz'))
    samples = write_samples(tmp_path, results, n=2)
    # One objective without any, one without the second image.
    shutil.rmtree(run_folder(tmp_path, 'lovasz', 0) / PREDICTIONS)
    (run_folder(tmp_path, 'ce', 0) / PREDICTIONS / 'frame001.png').unlink()
    drawn = draw_examples(results, tmp_path, samples, tmp_path)
    assert 'frame000' in drawn.caption
    assert 'frame001' not in drawn.caption
    assert draw_examples(results, tmp_path, [], tmp_path) is None
