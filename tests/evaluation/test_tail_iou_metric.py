"""Head, middle and tail beside upstream's figures."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmengine.logging import MMLogger
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


def test_ranked_by_training_pixels():
    thirds = split_by_frequency(COUNTS)
    members = {name: classes.tolist() for name, classes in thirds.items()}
    assert members == {'head': [1, 3], 'middle': [4], 'tail': [0, 2]}


def test_adds_to_upstreams_figures():
    ours, results = evaluate(TailIoUMetric(class_counts=COUNTS))
    upstream, _ = evaluate(IoUMetric())
    assert {key: ours[key] for key in upstream} == upstream
    intersect = sum(areas[0] for areas in results)
    union = sum(areas[1] for areas in results)
    iou = (100 * intersect / union).numpy()
    assert ours['mIoU_head'] == pytest.approx(iou[[1, 3]].mean(), abs=0.006)
    assert ours['mIoU_middle'] == pytest.approx(iou[4], abs=0.006)
    assert ours['mIoU_tail'] == pytest.approx(iou[[0, 2]].mean(), abs=0.006)


def test_every_class_has_a_scalar():
    """Except a class that is neither labelled nor predicted."""
    metric = PerClassIoUMetric()
    found, results = evaluate(metric)
    intersect = sum(areas[0] for areas in results)
    union = sum(areas[1] for areas in results)
    for name, iou in zip(CLASSES, 100 * intersect / union, strict=True):
        assert found[f'IoU/{name}'] == pytest.approx(float(iou), abs=0.006)
    metric.dataset_meta = {'classes': (*CLASSES, 'absent')}
    padded = [[F.pad(area, (0, 1)) for area in areas] for areas in results]
    assert 'IoU/absent' not in metric.compute_metrics(padded)


def test_the_log_names_the_classes_of_each_third(caplog):
    logger = MMLogger.get_current_instance()
    with caplog.at_level('INFO', logger.name):
        logger.addHandler(caplog.handler)
        found, _ = evaluate(TailIoUMetric(class_counts=COUNTS))
        logger.removeHandler(caplog.handler)
    assert f'mIoU_head {found["mIoU_head"]:.2f}: b, d' in caplog.text
    assert f'mIoU_tail {found["mIoU_tail"]:.2f}: a, c' in caplog.text


def test_without_counts_there_are_no_thirds():
    found = evaluate(PerClassIoUMetric())[0]
    assert evaluate(TailIoUMetric())[0] == found
    assert found.items() > evaluate(IoUMetric())[0].items()
