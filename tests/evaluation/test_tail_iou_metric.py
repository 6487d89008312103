"""Groups of classes beside upstream's metrics."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmseg.evaluation import IoUMetric
from mmseg.registry import METRICS

from mmseg_margin.errors import SettingError
from mmseg_margin.evaluation import (
    PerClassIoUMetric,
    TailIoUMetric,
    split_by_frequency,
)
from mmseg_margin.tooling.launch import add_metrics

CLASSES = ('background', 'b', 'c', 'd', 'e')
COUNTS = [10, 500, 0, 70, 30]


def evaluate(metric, seed=0):
    """Two random images with five classes."""
    generator = torch.Generator().manual_seed(seed)
    metric.dataset_meta = {'classes': CLASSES}
    for _ in range(2):
        label = torch.randint(0, 5, (1, 8, 8), generator=generator)
        noise = torch.randint(0, 5, (1, 8, 8), generator=generator)
        keep = torch.rand((1, 8, 8), generator=generator) < 0.6
        prediction = torch.where(keep, label, noise)
        found, truth = {'data': prediction}, {'data': label}
        metric.process({}, [{'pred_sem_seg': found, 'gt_sem_seg': truth}])
    results = list(metric.results)
    return metric.evaluate(2), results


@pytest.mark.parametrize(
    ('counts', 'sizes'),
    [
        ([3], (0, 1, 0)),
        ([3, 1], (1, 0, 1)),
        (range(5), (2, 1, 2)),
        (range(19), (6, 7, 6)),
        (range(150), (50, 50, 50)),
    ],
)
def test_every_class_is_in_one_third(counts, sizes):
    thirds = split_by_frequency(counts)
    assert tuple(map(len, thirds.values())) == sizes
    members = np.concatenate(list(thirds.values()))
    assert sorted(members) == list(range(len(counts)))


def iou_of(results):
    """IoU of each class in percent, from the areas of each image."""
    intersect, union = (sum(areas[i] for areas in results) for i in (0, 1))
    return (100 * intersect / union).numpy()


def test_adds_groups_to_upstreams_metrics_and_names_their_classes(logged):
    settings = {'class_counts': COUNTS, 'exclude': ['background']}
    ours, results = evaluate(TailIoUMetric(**settings))
    upstream, _ = evaluate(IoUMetric())
    assert {key: ours[key] for key in upstream} == upstream
    iou = iou_of(results)
    # Thirds are ranked by training pixels.
    groups = {'head': [1, 3], 'middle': [4], 'tail': [0, 2]}
    groups['foreground'] = [1, 2, 3, 4]
    for group, members in groups.items():
        mean = ours[f'mIoU_{group}']
        assert mean == pytest.approx(iou[members].mean(), abs=0.006)
        names = ', '.join(CLASSES[k] for k in members)
        assert f'mIoU_{group} {mean:.2f}: {names}' in logged.text


def test_the_foreground_excludes_any_classes_of_the_data_set():
    found, results = evaluate(PerClassIoUMetric(exclude=('c', 'background')))
    mean = pytest.approx(iou_of(results)[[1, 3, 4]].mean(), abs=0.006)
    assert found['mIoU_foreground'] == mean
    with pytest.raises(SettingError, match='void'):
        evaluate(PerClassIoUMetric(exclude='void'))


@pytest.mark.parametrize('kind', ['IoUMetric', 'TailIoUMetric'])
def test_the_foreground_with_a_flag(kind):
    cfg = Config({'test_evaluator': {'type': kind}})
    add_metrics(cfg, ['foreground'], 'test')
    found, _ = evaluate(METRICS.build(cfg.test_evaluator[0]))
    expected, _ = evaluate(PerClassIoUMetric(exclude=['background']))
    assert found == expected


def test_every_class_has_a_scalar():
    """Except a class that is neither labelled nor predicted."""
    metric = PerClassIoUMetric()
    found, results = evaluate(metric)
    for name, iou in zip(CLASSES, iou_of(results), strict=True):
        assert found[f'IoU/{name}'] == pytest.approx(float(iou), abs=0.006)
    metric.dataset_meta = {'classes': (*CLASSES, 'absent')}
    padded = [[F.pad(area, (0, 1)) for area in areas] for areas in results]
    assert 'IoU/absent' not in metric.compute_metrics(padded)
    # Without counts there are no thirds.
    assert evaluate(TailIoUMetric())[0] == found
    assert found.items() > evaluate(IoUMetric())[0].items()
