"""The mosaic shows where the objectives differ most."""

import shutil

import numpy as np
import pytest
from PIL import Image

from mmseg_margin.comparison.report.comparison import Comparison
from mmseg_margin.comparison.report.examples import (
    disagreement,
    examples_section,
)
from mmseg_margin.comparison.results import PREDICTIONS, run_folder
from tests.comparison.report.invented import make_study, write_samples


def save(path, pixels):
    Image.fromarray(np.array(pixels, np.uint8)).save(path)
    return path


def test_disagreement_counts_labelled_pixels(tmp_path):
    truth = save(tmp_path / 'truth.png', [[0, 1, 255, 1, 0]])
    predictions = [
        save(tmp_path / 'a.png', [[0, 1, 0, 1, 2]]),
        save(tmp_path / 'b.png', [[0, 1, 1, 2, 2]]),
        save(tmp_path / 'c.png', [[1, 1, 2, 1, 2]]),
    ]
    assert disagreement(predictions, truth) == pytest.approx(2 / 4)
    assert disagreement(predictions[:1], truth) == 0
    void = save(tmp_path / 'void.png', [[255] * 5])
    assert disagreement(predictions, void) == 0


def test_most_different_images_come_first(tmp_path):
    study = make_study(('margin', 'ce'))
    samples = write_samples(tmp_path, study, n=4)
    comparison = Comparison(study, {})
    section = examples_section(comparison, tmp_path, samples, tmp_path, rows=2)
    (picture,) = section.blocks
    assert 'frame003 (' in picture.caption
    assert picture.caption.index('frame003') < picture.caption.index(
        'frame002'
    )
    assert 'frame001' not in picture.caption
    with Image.open(picture.file) as image:
        assert image.width > 4 * 250


def test_what_is_missing_is_left_out(tmp_path):
    study = make_study(('margin', 'ce', 'lovasz'))
    samples = write_samples(tmp_path, study, n=2)
    comparison = Comparison(study, {})
    # One objective without any, one without the second image.
    shutil.rmtree(run_folder(tmp_path, 'lovasz', 0) / PREDICTIONS)
    (run_folder(tmp_path, 'ce', 0) / PREDICTIONS / 'frame001.png').unlink()
    section = examples_section(comparison, tmp_path, samples, tmp_path)
    assert 'frame000' in section.blocks[0].caption
    assert 'frame001' not in section.blocks[0].caption
    assert examples_section(comparison, tmp_path, [], tmp_path) is None
