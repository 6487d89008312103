"""The four scores against cityscapesscripts' own evaluation of files."""

import importlib

import numpy as np
import pytest
import torch
from mmseg.datasets import CityscapesDataset
from PIL import Image

from mmseg_margin.errors import SettingError
from mmseg_margin.evaluation import CityscapesScoresMetric
from mmseg_margin.evaluation.cityscapes_scores_metric import MODULE
from tests.evaluation.fakes import LABEL_IDS

pytest.importorskip('cityscapesscripts', reason='needs cityscapesscripts')
SCORES = {
    'cityscapes/IoU_class': 'averageScoreClasses',
    'cityscapes/iIoU_class': 'averageScoreInstClasses',
    'cityscapes/IoU_category': 'averageScoreCategories',
    'cityscapes/iIoU_category': 'averageScoreInstCategories',
}


def evaluate(cityscapes, classes, predict) -> dict[str, float]:
    """Predictions from the labels and file names of the validation split."""
    metric = CityscapesScoresMetric()
    metric.dataset_meta = {'classes': classes}
    for path in sorted(cityscapes.glob('gtFine/val/*/*_labelTrainIds.png')):
        prediction = predict(np.array(Image.open(path)), path.name)
        data = torch.as_tensor(prediction)[None]
        sample = {'pred_sem_seg': {'data': data}, 'seg_map_path': str(path)}
        metric.process({}, [sample])
    return metric.evaluate(3)


def test_equal_to_the_official_scores(cityscapes, tmp_path, monkeypatch):
    """For predictions of which two thirds are correct."""
    rng = np.random.default_rng(0)

    def predict(label, name):
        noise = rng.integers(0, 19, label.shape)
        wrong = (rng.random(label.shape) < 0.33) | (label == 255)
        prediction = np.where(wrong, noise, label)
        ids = np.array(LABEL_IDS, np.uint8)[prediction]
        Image.fromarray(ids).save(tmp_path / name)
        return prediction

    classes = CityscapesDataset.METAINFO['classes']
    found = evaluate(cityscapes, classes, predict)
    official = importlib.import_module(MODULE)
    # Numpy 2.4 removed a function that it calls.
    monkeypatch.setattr(np, 'in1d', np.isin, raising=False)
    monkeypatch.setattr(official.args, 'quiet', True)
    monkeypatch.setattr(official.args, 'JSONOutput', False)
    truths = map(str, sorted(cityscapes.glob('gtFine/val/*/*_labelIds.png')))
    files = map(str, sorted(tmp_path.glob('*.png')))
    scores = official.evaluateImgLists([*files], [*truths], official.args)
    expected = {name: 100 * scores[key] for name, key in SCORES.items()}
    assert found == pytest.approx(expected, rel=1e-12)
    assert len(set(found.values())) == 4


def test_classes_are_known_by_their_names(cityscapes):
    """In any order a perfect prediction is perfect."""
    classes = CityscapesDataset.METAINFO['classes'][::-1]

    def predict(label, name):
        return np.where(label < 19, 18 - label, 0)

    assert {*evaluate(cityscapes, classes, predict).values()} == {100}
    with pytest.raises(SettingError, match='license plate'):
        evaluate(cityscapes, ('road', 'license plate'), predict)
