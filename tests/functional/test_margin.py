"""The paper's loss against loops over pixels and classes."""

import math

import pytest
import torch

from mmseg_margin.functional import margin_loss, reference_loss
from tests.functional.builders import (
    eager,
    make_batch,
    slow_margin_loss,
    value_and_gradient,
)


@pytest.mark.parametrize(
    ('backend', 'num_classes', 'pos_weight', 'base'),
    [
        ('eager', 2, 1.0, 2.0),
        ('eager', 5, 5.0, math.e),
        ('compiled', 3, 3.0, math.e),
    ],
)
def test_equals_the_slow_reference(backend, num_classes, pos_weight, base):
    batch = make_batch(num_classes, (2, 5, 7))
    settings = dict(pos_weight=pos_weight, log_base=base)
    expected = value_and_gradient(slow_margin_loss, *batch, **settings)
    loss, gradient = value_and_gradient(
        margin_loss, *batch, backend=backend, **settings
    )
    assert loss == pytest.approx(float(expected[0]), rel=1e-10)
    torch.testing.assert_close(gradient, expected[1], rtol=0, atol=1e-8)


def test_settings_by_name_the_first_name_and_many_pieces():
    batch = make_batch(4, (2, 3, 3))
    by_name = eager(*batch, pos_weight='num_classes', log_base='e')
    assert by_name == eager(*batch, pos_weight=4.0, log_base=math.e)
    mean = eager(*batch, class_mean=True)
    torch.testing.assert_close(4 * mean, eager(*batch))
    large = make_batch(3, (2, 700, 90), dtype=torch.float32)
    torch.testing.assert_close(
        eager(*large), reference_loss(*large), check_dtype=False
    )


@pytest.mark.parametrize('backend', ['eager', 'compiled'])
@pytest.mark.parametrize(
    'scores',
    [[1.0, 1.0, 1.0], [1.0, 1.0, 0.0], [2.0, 1.0, 1.0], [0, 2.0, 2.0]],
)
@pytest.mark.parametrize('label', [0, 1])
def test_ties_share_evenly(backend, scores, label):
    rho = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    scores = torch.tensor([scores], dtype=torch.float64)
    batch = scores, torch.tensor([label]), rho, rho
    expected = value_and_gradient(slow_margin_loss, *batch)
    result = value_and_gradient(margin_loss, *batch, backend=backend)
    torch.testing.assert_close(result, expected)


def test_a_wrong_top_class_is_pushed_as_documented():
    """Near uniform scores its gradient is (3 + w - K) / 2."""
    K = 8
    scores = torch.full((1, K), 0.0, dtype=torch.float64)
    scores[0, 3] = 1e-9
    batch = scores, torch.tensor([0]), 0, 0
    for w, expected in ((1.0, (4 - K) / 2), (float(K), 1.5)):
        _, gradient = value_and_gradient(eager, *batch, pos_weight=w)
        assert gradient[0, 3] == pytest.approx(expected, abs=1e-6)


def test_offsets_must_fit_the_classes_and_the_scores():
    scores, labels = torch.zeros(2, 3, 4), torch.zeros(2, 4).long()
    with pytest.raises(ValueError, match='rho_0k has 2 numbers and the score'):
        eager(scores, labels, [0.1, 0.2], 0.0)
    with pytest.warns(UserWarning, match='class 1 is 512, far beyond'):
        eager(scores, labels, [0.1, 512.0, 0.2], 0.0)
