"""Cross-entropy and focal loss against a loop over pixels."""

import math

import pytest
import torch
from mmseg.models.losses import CrossEntropyLoss

from mmseg_margin.losses import SoftmaxFocalLoss, WeightedCrossEntropyLoss
from tests.losses.builders import GAMMA, STATS, WEIGHTS, build


@pytest.mark.parametrize('name', ['ce', 'focal'])
@pytest.mark.parametrize('class_weight', [None, WEIGHTS, 'median'])
def test_mean_over_the_weights_of_labelled_pixels(name, class_weight, batch):
    scores, labels = batch
    loss = build(name, class_weight=class_weight, loss_weight=0.4)
    loss.set_class_stats(STATS)
    weights = class_weight or [1.0] * 3
    if class_weight == 'median':
        weights = STATS.class_weights('median')
    total = divisor = 0.0
    for n, y, x in (labels != 255).nonzero().tolist():
        k = int(labels[n, y, x])
        p = float(scores[n, :, y, x].double().softmax(0)[k])
        factor = (1 - p) ** GAMMA if name == 'focal' else 1.0
        total -= weights[k] * factor * math.log(p)
        divisor += weights[k]
    expected = pytest.approx(0.4 * total / divisor, rel=1e-5)
    assert float(loss(scores, labels)) == expected


@pytest.mark.parametrize('ignore_index', [255, -100, 1])
def test_it_is_mmsegs_loss_where_that_works(batch, ignore_index):
    scores, labels = batch
    labels = labels.clamp(max=2)
    labels[labels == ignore_index] = 0  # theirs may fail on ignored pixels
    theirs = CrossEntropyLoss(class_weight=WEIGHTS)
    ours = WeightedCrossEntropyLoss(WEIGHTS)
    expected = theirs(scores, labels, ignore_index=ignore_index)
    actual = ours(scores, labels, ignore_index=ignore_index)
    torch.testing.assert_close(actual, expected)


def test_a_negative_power_is_refused():
    with pytest.raises(ValueError, match='gamma=-1'):
        SoftmaxFocalLoss(gamma=-1)
