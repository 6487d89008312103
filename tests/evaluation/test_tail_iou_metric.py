"""Head, middle and tail beside upstream's figures."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmseg.evaluation import IoUMetric

from mmseg_margin.evaluation import (
    PerClassIoUMetric,
    TailIoUMetric,
    split_by_frequency,
)

CLASSES = tuple('abcde')
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
        (range(4), (1, 2, 1)),
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


def class_iou(results):
    """IoU of each class in percent, from the areas of each image."""
    intersect, union = (sum(areas[i] for areas in results) for i in (0, 1))
    return (100 * intersect / union).numpy()


def test_adds_thirds_to_upstreams_figures_and_names_their_classes(logged):
    ours, results = evaluate(TailIoUMetric(class_counts=COUNTS))
    upstream, _ = evaluate(IoUMetric())
    assert {key: ours[key] for key in upstream} == upstream
    iou = class_iou(results)
    # Ranked by training pixels.
    thirds = {'head': [1, 3], 'middle': [4], 'tail': [0, 2]}
    for third, members in thirds.items():
        mean = ours[f'mIoU_{third}']
        assert mean == pytest.approx(iou[members].mean(), abs=0.006)
        names = ', '.join(CLASSES[k] for k in members)
        assert f'mIoU_{third} {mean:.2f}: {names}' in logged.text


def test_every_class_has_a_scalar():
    """Except a class that is neither labelled nor predicted."""
    metric = PerClassIoUMetric()
    found, results = evaluate(metric)
    for name, iou in zip(CLASSES, class_iou(results), strict=True):
        assert found[f'IoU/{name}'] == pytest.approx(float(iou), abs=0.006)
    metric.dataset_meta = {'classes': (*CLASSES, 'absent')}
    padded = [[F.pad(area, (0, 1)) for area in areas] for areas in results]
    assert 'IoU/absent' not in metric.compute_metrics(padded)
    # Without counts there are no thirds.
    assert evaluate(TailIoUMetric())[0] == found
    assert found.items() > evaluate(IoUMetric())[0].items()
