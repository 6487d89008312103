"""The four scores against cityscapesscripts' own command."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from mmseg_margin.evaluation import CityscapesScoresMetric
from tests.evaluation.fakes import LABEL_IDS

pytest.importorskip('cityscapesscripts', reason='needs cityscapesscripts')

# The command as installed; numpy 2.4 removed a function that it calls.
COMMAND = """
import numpy, runpy
numpy.in1d = getattr(numpy, 'in1d', numpy.isin)
name = 'cityscapesscripts.evaluation.evalPixelLevelSemanticLabeling'
runpy.run_module(name, run_name='__main__')
"""
SCORES = {
    'cityscapes/IoU_class': 'averageScoreClasses',
    'cityscapes/iIoU_class': 'averageScoreInstClasses',
    'cityscapes/IoU_category': 'averageScoreCategories',
    'cityscapes/iIoU_category': 'averageScoreInstCategories',
}


def predictions(root):
    """For each label file of val, train ids that are right to two thirds."""
    rng = np.random.default_rng(0)
    for path in sorted(root.glob('gtFine/val/*/*_labelTrainIds.png')):
        label = np.array(Image.open(path))
        noise = rng.integers(0, 19, label.shape)
        wrong = (rng.random(label.shape) < 0.33) | (label == 255)
        yield path, np.where(wrong, noise, label)


def run_command(root, results, export) -> dict:
    """The JSON that the official command writes."""
    export.mkdir()
    environment = {
        **os.environ,
        'CITYSCAPES_DATASET': str(root),
        'CITYSCAPES_RESULTS': str(results),
        'CITYSCAPES_EXPORT_DIR': str(export),
    }
    command = [sys.executable, '-c', COMMAND]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    written = export / 'resultPixelLevelSemanticLabeling.json'
    return json.loads(written.read_text())


def test_equal_to_the_official_command(cityscapes, tmp_path):
    metric = CityscapesScoresMetric()
    results = tmp_path / 'results'
    results.mkdir()
    for path, prediction in predictions(cityscapes):
        ids = np.array(LABEL_IDS, np.uint8)[prediction]
        name = path.name.replace('_gtFine_labelTrainIds', '')
        Image.fromarray(ids).save(results / name)
        data = torch.tensor(prediction)[None]
        metric.process(
            {}, [{'pred_sem_seg': {'data': data}, 'seg_map_path': str(path)}]
        )
    found = metric.evaluate(3)
    official = run_command(cityscapes, results, tmp_path / 'export')
    expected = {name: 100 * official[key] for name, key in SCORES.items()}
    assert found == pytest.approx(expected, rel=1e-12)
    assert len(set(found.values())) == 4


def test_leaves_the_settings_of_cityscapesscripts_alone(cityscapes):
    from cityscapesscripts.evaluation import (
        evalPixelLevelSemanticLabeling as Official,
    )

    before = dict(vars(Official.args))
    metric = CityscapesScoresMetric()
    path, prediction = next(predictions(cityscapes))
    data = torch.tensor(prediction)[None]
    metric.process(
        {}, [{'pred_sem_seg': {'data': data}, 'seg_map_path': str(path)}]
    )
    metric.evaluate(1)
    assert vars(Official.args) == before


def test_labels_of_another_data_set_are_named(tmp_path):
    truth = np.full((4, 4), 200, np.uint8)
    Image.fromarray(truth).save(tmp_path / 'a_gtFine_labelIds.png')
    Image.fromarray(truth).save(tmp_path / 'a_gtFine_instanceIds.png')
    sample = {
        'pred_sem_seg': {'data': torch.zeros(1, 4, 4, dtype=torch.long)},
        'seg_map_path': str(tmp_path / 'a_gtFine_labelTrainIds.png'),
    }
    with pytest.raises(ValueError, match='Label 200 is not an id'):
        CityscapesScoresMetric().process({}, [sample])
