"""MarginBoundMetric against a transcription of the paper, pixel by pixel."""

import numpy as np
import pytest
import torch

from mmseg_margin.evaluation import MarginBoundMetric
from mmseg_margin.functional import margin_offsets

COUNTS = [9000, 800, 200]
TAU = 50.0


def reference(scores, labels, rho_0k, rho_k0) -> list[tuple[float, float]]:
    """IoU and its bound from the definitions, with Python loops only."""
    num_classes, num_pixels = scores.shape

    def phi(margin: float, rho: float) -> float:
        """The rho-margin loss of Eq. 9."""
        return min(1.0, max(0.0, 1.0 - margin / rho))

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


def make_sample() -> dict:
    """Scores of one image, its labels and some ignored pixels."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 12, 12, generator=generator)
    labels = torch.randint(0, 3, (1, 12, 12), generator=generator)
    scores = scores.scatter_add(0, labels, torch.ones(1, 12, 12))
    labels[0, :2] = 255
    return {'seg_logits': {'data': scores}, 'gt_sem_seg': {'data': labels}}


def make_metric(**settings) -> MarginBoundMetric:
    metric = MarginBoundMetric(**{'class_counts': COUNTS, **settings})
    metric.dataset_meta = {'classes': ('road', 'car', 'rider')}
    return metric


def test_the_scores_are_those_of_the_paper():
    metric, sample = make_metric(tau=TAU), make_sample()
    metric.process({}, [sample])
    labels = sample['gt_sem_seg']['data'].flatten()
    pixels = sample['seg_logits']['data'].flatten(1).double().numpy()
    kept = (labels != 255).numpy()
    offsets = margin_offsets(COUNTS, TAU)
    expected = reference(pixels[:, kept], labels[kept].numpy(), *offsets)
    iou, bound = 100 * np.mean(expected, axis=0)
    means = {'margin/mIoU': iou, 'margin/mIoU_bound': bound}
    assert metric.evaluate(1) == pytest.approx(means, rel=1e-6)
    assert bound < iou


def test_unusable_settings_are_explained():
    for settings, message in (
        ({'class_counts': None}, 'class counts'),
        ({'ignore_index': 254}, 'ignore_index'),
    ):
        with pytest.raises(ValueError, match=message):
            make_metric(**settings).process({}, [make_sample()])
