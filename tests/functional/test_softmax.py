"""Cross-entropy and focal loss against torch's own."""

import pytest
import torch
import torch.nn.functional as F

from mmseg_margin.functional.softmax import CrossEntropy
from mmseg_margin.functional.stage import reduced_loss
from tests.functional.builders import IGNORE, make_batch, value_and_gradient


@pytest.mark.parametrize('backend', ['eager', 'compiled'])
@pytest.mark.parametrize('gamma', [0.0, 0.5, 2.0])
def test_equals_torch(backend, gamma):
    scores, labels, *_ = make_batch(4, (2, 5, 7))

    def expected(scores):
        each = F.cross_entropy(
            scores, labels, reduction='none', ignore_index=IGNORE
        )
        focal = (1 - torch.exp(-each)) ** gamma * each
        return focal.sum() / (labels != IGNORE).sum()

    torch.testing.assert_close(
        value_and_gradient(
            reduced_loss, scores, labels, CrossEntropy(gamma), backend=backend
        ),
        value_and_gradient(expected, scores),
    )


def test_a_certain_pixel_has_no_focal_loss_and_no_gradient():
    scores = torch.tensor([[1e4, 0.0, 0.0]])
    batch = scores, torch.tensor([0]), CrossEntropy(2.0)
    loss, gradient = value_and_gradient(reduced_loss, *batch, backend='eager')
    assert loss == 0
    assert (gradient == 0).all()
