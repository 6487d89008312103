"""MarginBoundMetric against a transcription of the paper, pixel by pixel."""

import numpy as np
import pytest
import torch
from mmengine import dist
from mmseg.evaluation import IoUMetric

from mmseg_margin.evaluation import MarginBoundMetric
from mmseg_margin.evaluation.margin_bound_metric import margin_sums
from mmseg_margin.functional import margin_offsets
from tests.processes import run_ranks

CLASSES = ('road', 'car', 'rider')
COUNTS = [9000, 800, 200]
TAU = 50.0


def phi(margin: float, rho: float) -> float:
    """The rho-margin loss of Eq. 9."""
    return min(1.0, max(0.0, 1.0 - margin / rho))


def reference(scores, labels, rho_0k, rho_k0) -> list[tuple[float, float]]:
    """IoU and its bound from the definitions, with Python loops only."""
    num_classes, num_pixels = scores.shape
    found = []
    for k in range(num_classes):
        missed = claimed = loss_k0 = loss_0k = of_class = 0.0
        for i in range(num_pixels):
            others = [scores[j, i] for j in range(num_classes) if j != k]
            margin = scores[k, i] - max(others)
            if labels[i] == k:
                of_class += 1
                missed += margin < 0
                loss_k0 += phi(margin, rho_k0[k])
            else:
                claimed += margin > 0
                loss_0k += phi(-margin, rho_0k[k])
        iou = (of_class - missed) / (of_class + claimed)
        found.append((iou, (of_class - loss_k0) / (of_class + loss_0k)))
    return found


@pytest.mark.parametrize(
    ('scores', 'rho', 'loss_k0', 'loss_0k'),
    [
        # A tie counts against every class involved.
        ([[2.0], [2.0], [0.0]], 0.5, [1, 0, 0], [0, 1, 0]),
        # An offset far below half precision is not lost.
        ([[1.0, 1.0], [1.0 - 1e-6, 0.0]], 5.69e-11, [0, 0], [0, 0]),
        # An offset of zero makes it the zero-one loss.
        ([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]], 0.0, [2, 0], [0, 2]),
    ],
)
def test_losses_of_pixels_of_class_0(scores, rho, loss_k0, loss_0k):
    scores = torch.tensor(scores)
    labels = torch.zeros(scores.shape[1], dtype=torch.long)
    sums = margin_sums(scores, labels, *torch.full((2, len(scores)), rho))
    assert sums[3:].tolist() == [loss_k0, loss_0k]


def make_sample(seed: int, size: int = 12) -> dict:
    """Scores of one image, its labels and some ignored pixels."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(3, size, size, generator=generator)
    labels = torch.randint(0, 3, (1, size, size), generator=generator)
    scores = scores.scatter_add(0, labels, torch.ones(1, size, size))
    labels[0, :2] = 255
    return {
        'seg_logits': {'data': scores},
        'pred_sem_seg': {'data': scores.argmax(0, keepdim=True)},
        'gt_sem_seg': {'data': labels},
    }


def make_metric(**settings) -> MarginBoundMetric:
    metric = MarginBoundMetric(**{'class_counts': COUNTS, **settings})
    metric.dataset_meta = {'classes': CLASSES}
    return metric


def expected_scores(size: int):
    """From the pixels of all images at once."""
    samples = [make_sample(seed) for seed in range(size)]
    labels = torch.cat([s['gt_sem_seg']['data'].flatten() for s in samples])
    scores = [s['seg_logits']['data'].flatten(1) for s in samples]
    kept = labels != 255
    pixels = torch.cat(scores, 1)[:, kept].double().numpy()
    offsets = margin_offsets(COUNTS, TAU)
    found = reference(pixels, labels[kept].numpy(), *offsets)
    iou, bound = 100 * np.array(found).T
    means = {'margin/mIoU': iou.mean(), 'margin/mIoU_bound': bound.mean()}
    per_class = zip(CLASSES, bound.round(2), strict=True)
    rounded = {f'margin/bound_IoU/{name}': value for name, value in per_class}
    return pytest.approx(means | rounded, rel=1e-6)


def test_the_scores_are_those_of_the_paper_and_the_iou_is_upstreams():
    metric, upstream = make_metric(tau=TAU), IoUMetric()
    upstream.dataset_meta = {'classes': CLASSES}
    for seed in range(4):
        metric.process({}, [make_sample(seed)])
        upstream.process({}, [make_sample(seed)])
    found = metric.evaluate(4)
    assert found == expected_scores(4)
    assert found['margin/mIoU_bound'] < found['margin/mIoU']
    mean = pytest.approx(upstream.evaluate(4)['mIoU'], abs=0.006)
    assert found['margin/mIoU'] == mean


def test_ranks_together_count_every_image_once(tmp_path):
    def evaluate_on_rank():
        rank, world_size = dist.get_dist_info()
        metric = make_metric(tau=TAU)
        # As DefaultSampler: repeated from the start to fill the last round.
        for seed in (rank, (world_size + rank) % 5):
            metric.process({}, [make_sample(seed)])
        return metric.evaluate(5)

    found = run_ranks(3, evaluate_on_rank, tmp_path / 'ranks')
    assert found == [expected_scores(5)] * 3


@pytest.mark.parametrize(
    ('settings', 'change', 'message'),
    [
        ({'class_counts': None}, {}, 'no class counts'),
        ({'class_counts': [1, 2]}, {}, '2 entries'),
        ({}, {'seg_logits': {'data': torch.rand(1, 12, 12)}}, 'binary'),
        ({'ignore_index': 254}, {}, 'ignore_index'),
    ],
)
def test_unusable_input_is_explained(settings, change, message):
    metric = make_metric(**settings)
    with pytest.raises(ValueError, match=message):
        metric.process({}, [{**make_sample(0), **change}])
