"""SoftmaxFocalLoss against a loop over pixels, with and without weights."""

import math

import pytest
import torch

from mmseg_margin.losses import SoftmaxFocalLoss
from mmseg_margin.stats import ClassStats

STATS = ClassStats(list('abc'), [70, 20, 10], [4, 2, 1], [100, 60, 30])


@pytest.mark.parametrize('class_weight', [None, [1.0, 2.0, 3.0], 'median'])
def test_it_is_the_focal_loss(class_weight):
    torch.manual_seed(0)
    scores, labels = torch.randn(2, 3, 4, 5), torch.randint(0, 3, (2, 4, 5))
    labels[0, :2] = 255
    loss = SoftmaxFocalLoss(gamma=1.5, class_weight=class_weight)
    loss.set_class_stats(STATS)
    weights = class_weight or [1.0] * 3
    if class_weight == 'median':
        weights = STATS.class_weights('median')
    total = divisor = 0.0
    for n, y, x in (labels != 255).nonzero().tolist():
        k = int(labels[n, y, x])
        p = float(scores[n, :, y, x].double().softmax(0)[k])
        total -= weights[k] * (1 - p) ** 1.5 * math.log(p)
        divisor += weights[k]
    actual = float(loss(scores, labels))
    assert actual == pytest.approx(total / divisor, rel=1e-5)


def test_a_negative_power_is_refused():
    with pytest.raises(ValueError, match='gamma=-1'):
        SoftmaxFocalLoss(gamma=-1)
