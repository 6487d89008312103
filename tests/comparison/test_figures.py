"""Curves are averaged, and the mosaic shows where objectives differ most."""

import re
import shutil
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from PIL import Image

from mmseg_margin.comparison import figures, runs
from mmseg_margin.functional import reference_loss
from mmseg_margin.report.pictures import picture, title_lines
from tests.comparison.invented import fit, make_comparison, write_samples


@pytest.mark.parametrize('end', [4.0, float('nan')])
def test_average_of_runs_of_different_length(end):
    """A run that diverged leaves a gap."""
    curves = [[(10, 1.0), (20, end)], [(10, 3.0)]]
    iterations, mean, deviation = figures.average_curve(curves)
    assert iterations.tolist() == [10, 20]
    np.testing.assert_equal(mean, [2.0, end])
    np.testing.assert_allclose(deviation, [2**0.5, 0.0 * end])


def test_only_runs_with_curves_are_drawn(tmp_path):
    results = make_comparison(('margin', 'ce'), (0,), skip=[('margin', 0)])
    _, together, single = figures.curve_blocks(results, tmp_path)
    assert together.file.stat().st_size > 1000
    assert [each.caption for each in single] == ['ce: mIoU and loss.']
    results.runs.pop()
    text = 'No run has recorded any curves.'
    assert figures.curve_blocks(results, tmp_path) == [text]


def test_parts_of_the_loss_of_the_decode_head_have_a_panel(tmp_path):
    drawn = []
    for heads in ((), ('decode',), ('decode', 'aux')):
        results = make_comparison(('margin',), (0,))
        for head in heads:
            results.runs[0].curves[f'{head}.jaccard'] = [(10, 1.0)]
        *_, (single,) = figures.curve_blocks(results, tmp_path)
        with Image.open(single.file) as image:
            drawn.append(np.array(image))
    without, decode, both = drawn
    assert len(decode) == pytest.approx(1.5 * len(without), rel=0.01)
    np.testing.assert_array_equal(decode, both)


def test_a_long_name_is_cut_off():
    weights = ','.join(['1.0'] * 150)
    lines = title_lines(f'ce:class_weight=[{weights}]').splitlines()
    assert (len(lines), lines[-1]) == (6, '...')


def test_an_objective_keeps_its_colour():
    alone = figures.colours_of(['margin'])['margin']
    names = ['ce', 'margin:tau=20', 'margin', 'margin:tau=5']
    colours = figures.colours_of(names)
    assert colours['margin'] == alone
    assert len(set(colours.values())) == len(names)


def test_margins_of_algorithm_1_lower_the_score_of_a_rare_class():
    """Where both classes are equally probable, by the paper's objective."""
    rho = torch.tensor([10 * 100**0.5 / 900, 10 * 900**0.5 / 100])
    score = torch.linspace(-5, 5, 201)
    losses = [
        reference_loss(
            torch.tensor([[0.0, 0.0], [s, s]]).T.reshape(2, 2, 1),
            torch.tensor([[0], [1]]),
            rho,
            torch.zeros(2),
        )
        for s in score
    ]
    assert score[np.argmin(losses)] < -0.5
    common, rare = figures.margin_shifts([900, 100])
    assert rare == pytest.approx(-common)
    assert rare == pytest.approx(float(rho[0] - rho[1]) / 2, rel=0.02)
    assert np.isnan(figures.margin_shifts([9, 0, 1])).tolist() == [0, 1, 0]
    assert np.isnan(figures.margin_shifts([9, 0])).all()


@pytest.fixture
def drawn(monkeypatch):
    """All figures that were drawn."""
    found = []

    @contextmanager
    def keep(*arguments):
        with picture(*arguments) as figure:
            yield figure
            found.append(figure)

    monkeypatch.setattr(figures, 'picture', keep)
    return found


def test_fitted_offsets_stand_beside_those_of_algorithm_1(tmp_path, drawn):
    fitted = fit(make_comparison(('ce', 'margin'), (0, 1))).runs
    for run in fitted:
        run.fitted['offsets'] = [run.seed + 2.0, 1.0, 1.0, 1.0, 0.0]
    compared = {'short/a': fitted, 'long/a': fitted[:1], 'b': fitted[:2]}
    results = runs.Results(compared, ['ce', 'margin'])
    found = figures.draw_offsets(results, results.names, tmp_path)
    assert found.file.read_bytes().startswith(b'\x89PNG')
    assert 'added to the scores at inference' in found.caption
    # One panel for both schedules of a data set.
    first, second = drawn[0].axes
    assert (first.get_title(), second.get_title()) == ('a', 'b')
    names = [label.get_text() for label in first.get_xticklabels()]
    assert names == ['tissue', 'shaft', 'claspers', 'wrist', 'probe']
    bars, *dots = first.containers
    shifts = figures.margin_shifts(fitted[0].class_counts)[[0, 1, 3, 2, 4]]
    np.testing.assert_allclose([bar.get_height() for bar in bars], shifts)
    named = [each.get_label() for each in dots]
    assert named == ['ce, short', 'margin, short', 'ce, long']
    # Less their means 1 and 1.2: the mean of 1 and 1.8, and so on.
    expected = [1.4, -0.1, -0.1, -0.1, -1.1]
    np.testing.assert_allclose(dots[0].lines[0].get_ydata(), expected)
    assert len(second.containers) == 2
    assert figures.draw_offsets(results, ['lovasz'], tmp_path) is None


def test_disagreement_counts_labelled_pixels():
    truth = np.array([0, 1, 255, 1, 0])
    predictions = np.array([[0, 1, 0, 1, 2], [0, 1, 1, 2, 2], [1, 1, 2, 1, 2]])
    assert figures.disagreement(predictions, truth) == pytest.approx(2 / 4)
    assert figures.disagreement(predictions[:1], truth) == 0
    assert figures.disagreement(predictions, np.full(5, 255)) == 0


def test_most_different_images_come_first(tmp_path):
    results = make_comparison(('margin', 'ce'))
    samples = write_samples(tmp_path, results, n=4)
    widths = []
    for _ in range(2):
        found = figures.draw_examples(results, tmp_path, samples, tmp_path, 2)
        order = r'with seed 0 .*: frame003 \(.*%\), frame002 \(.*%\)\.'
        assert re.search(order, found.caption)
        with Image.open(found.file) as image:
            widths.append(image.width)
        write_samples(tmp_path, results, 4, runs.FITTED_PREDICTIONS)
    assert widths[0] > 4 * 250
    assert widths[1] == pytest.approx(widths[0] * 6 / 4, rel=0.1)


def test_missing_predictions_are_left_out(tmp_path):
    results = make_comparison(('margin', 'ce', 'lovasz'))
    samples = write_samples(tmp_path, results, n=2)
    _, ce, lovasz = (
        runs.run_folder(tmp_path, name, 0) / runs.PREDICTIONS
        for name in results.names
    )
    # One objective without any, one without the second image.
    shutil.rmtree(lovasz)
    (ce / 'frame001.png').unlink()
    found = figures.draw_examples(results, tmp_path, samples, tmp_path)
    assert 'frame000' in found.caption
    assert 'frame001' not in found.caption
    assert figures.draw_examples(results, tmp_path, [], tmp_path) is None
