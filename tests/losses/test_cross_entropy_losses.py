"""Cross-entropy and focal loss against a loop over pixels."""

import math

import pytest
import torch
from mmseg.models.losses import CrossEntropyLoss

from mmseg_margin.losses import WeightedCrossEntropyLoss
from tests.losses.builders import GAMMA, WEIGHTS, build


@pytest.mark.parametrize('name', ['ce', 'focal'])
def test_mean_over_the_weights_of_labelled_pixels(name, batch):
    scores, labels = batch
    total = divisor = 0.0
    for n, y, x in (labels != 255).nonzero().tolist():
        k = int(labels[n, y, x])
        p = float(scores[n, :, y, x].double().softmax(0)[k])
        factor = (1 - p) ** GAMMA if name == 'focal' else 1.0
        total -= WEIGHTS[k] * factor * math.log(p)
        divisor += WEIGHTS[k]
    loss = build(name, class_weight=WEIGHTS)(scores, labels)
    assert float(loss) == pytest.approx(total / divisor, rel=1e-5)


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
