"""The Jaccard metric loss against its definition, class by class."""

import pytest
import torch

from mmseg_margin.losses import JaccardMetricLoss
from tests.functional.builders import value_and_gradient


def slow_loss(scores, labels, smooth):
    labelled = labels != 255
    x = scores.softmax(1).movedim(1, -1)[labelled]
    losses = []
    for k in labels[labelled].unique().tolist():
        y = (labels[labelled] == k).to(x)
        norms, distance = x[:, k].sum() + y.sum(), (x[:, k] - y).abs().sum()
        index = ((norms - distance) / 2 + smooth) / (
            (norms + distance) / 2 + smooth
        )
        losses.append(1 - index)
    return sum(losses) / len(losses)


@pytest.mark.parametrize('smooth', [0.0, 1.0])
def test_equals_its_definition(batch, smooth):
    scores, labels = batch
    labels[labels == 1] = 2  # a class that the batch does not show
    torch.testing.assert_close(
        value_and_gradient(JaccardMetricLoss(smooth), scores, labels),
        value_and_gradient(slow_loss, scores, labels, smooth),
    )
    result = value_and_gradient(
        JaccardMetricLoss(smooth), scores, labels.fill_(255)
    )
    assert not any(x.any() for x in result)


def test_bad_labels_and_settings(batch):
    batch[1][0, 3, 3] = 7
    with pytest.raises(ValueError, match=r'Labels \[7\] lie outside'):
        JaccardMetricLoss()(*batch)
    with pytest.raises(ValueError, match='smooth=-1 must not be negative'):
        JaccardMetricLoss(smooth=-1)
    with pytest.raises(ValueError, match='must contain "loss"'):
        JaccardMetricLoss(loss_name='jml')
