"""The four scores against cityscapesscripts' own command."""

import importlib
import json

import numpy as np
import pytest
import torch
from mmseg.datasets import CityscapesDataset
from PIL import Image

from mmseg_margin.errors import SettingError
from mmseg_margin.evaluation import CityscapesScoresMetric
from tests.commands import output_of_python
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


def sample(path, prediction) -> dict:
    data = torch.as_tensor(prediction)[None]
    return {'pred_sem_seg': {'data': data}, 'seg_map_path': str(path)}


def test_equal_to_the_official_command(cityscapes, tmp_path):
    """For predictions of which two thirds are correct."""
    module = 'cityscapesscripts.evaluation.evalPixelLevelSemanticLabeling'
    settings = vars(importlib.import_module(module).args)
    before = dict(settings)
    metric = CityscapesScoresMetric()
    rng = np.random.default_rng(0)
    for path in sorted(cityscapes.glob('gtFine/val/*/*_labelTrainIds.png')):
        label = np.array(Image.open(path))
        noise = rng.integers(0, 19, label.shape)
        wrong = (rng.random(label.shape) < 0.33) | (label == 255)
        prediction = np.where(wrong, noise, label)
        metric.process({}, [sample(path, prediction)])
        name = path.name.replace('_gtFine_labelTrainIds', '')
        ids = np.array(LABEL_IDS, np.uint8)[prediction]
        Image.fromarray(ids).save(tmp_path / name)
    found = metric.evaluate(3)
    output_of_python(
        *(tmp_path, '-c', COMMAND),
        CITYSCAPES_DATASET=str(cityscapes),
        CITYSCAPES_RESULTS=str(tmp_path),
        CITYSCAPES_EXPORT_DIR=str(tmp_path),
    )
    written = tmp_path / 'resultPixelLevelSemanticLabeling.json'
    official = json.loads(written.read_text())
    expected = {name: 100 * official[key] for name, key in SCORES.items()}
    assert found == pytest.approx(expected, rel=1e-12)
    assert len(set(found.values())) == 4
    assert settings == before  # those of cityscapesscripts are left alone


def test_classes_are_known_by_their_names(cityscapes):
    """In any order a perfect prediction is perfect."""
    classes = CityscapesDataset.METAINFO['classes'][::-1]
    metric = CityscapesScoresMetric()
    metric.dataset_meta = {'classes': classes}
    for path in sorted(cityscapes.glob('gtFine/val/*/*_labelTrainIds.png')):
        label = np.array(Image.open(path))
        metric.process({}, [sample(path, np.where(label < 19, 18 - label, 0))])
    assert set(metric.evaluate(3).values()) == {100}
    assert metric.label_ids(classes)[:2].tolist() == [33, 32]


def test_unusable_input_is_explained(tmp_path):
    metric = CityscapesScoresMetric()
    samples = [sample(tmp_path / 'a_labelTrainIds.png', np.zeros((4, 4), int))]
    with pytest.raises(FileNotFoundError, match='labelIds'):
        metric.process({}, samples)
    for name in ('lane', 'license plate'):
        metric.dataset_meta = {'classes': ('road', name)}
        with pytest.raises(SettingError, match=name):
            metric.process({}, samples)
