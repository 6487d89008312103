"""The stage in strips against up-sampling as a whole."""

import pytest
import torch
import torch.nn.functional as F

from mmseg_margin.functional import strips, upsampled_stage
from mmseg_margin.functional.strips import upsampled_sample


def cross_entropy(scores, labels):
    return F.cross_entropy(scores, labels, reduction='none', ignore_index=255)


def as_a_whole(low, labels, weight, align_corners=False):
    scores = F.interpolate(
        low,
        size=labels.shape[1:],
        mode='bilinear',
        align_corners=align_corners,
    )
    hits = (scores.argmax(1) == labels) & (labels != 255)
    return (weight * cross_entropy(scores, labels)).sum(), hits.sum()


@pytest.mark.parametrize(
    ('classes', 'low', 'full', 'align_corners'),
    [
        (2, (9, 5), (9, 5), False),
        (19, (13, 7), (26, 14), False),
        (171, (11, 3), (44, 12), False),
        (5, (17, 6), (136, 48), False),
        (5, (9, 6), (27, 20), False),
        (5, (9, 6), (32, 21), False),
        (5, (9, 6), (18, 12), True),
    ],
)
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_it_is_exact(monkeypatch, classes, low, full, align_corners, dtype):
    monkeypatch.setattr(strips, 'STRIP_SCORES', 1)
    torch.manual_seed(0)
    scores = torch.randn(2, classes, *low, dtype=dtype, requires_grad=True)
    labels = torch.randint(0, classes, (2, *full))
    labels[0, : full[0] // 2] = 255
    weight = torch.rand(2, *full, dtype=dtype)
    expected, hits = as_a_whole(scores, labels, weight, align_corners)
    (gradient,) = torch.autograd.grad(3 * expected, scores)
    result = upsampled_stage(
        scores,
        labels,
        cross_entropy,
        pixel_weight=weight,
        align_corners=align_corners,
    )
    (3 * result.loss).backward()
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    close = {'rtol': tolerance, 'atol': tolerance}
    torch.testing.assert_close(result.loss, expected, **close)
    torch.testing.assert_close(scores.grad, gradient, **close)
    assert result.hits == hits
    assert not result.hits.requires_grad


def test_half_scores_and_no_gradient():
    low = torch.randn(1, 3, 4, 4)
    labels = torch.randint(0, 3, (1, 8, 8))
    whole = upsampled_stage(low.bfloat16().float(), labels, cross_entropy)
    half = low.bfloat16().requires_grad_()
    result = upsampled_stage(half, labels, cross_entropy)
    result.loss.backward()
    assert torch.equal(result.loss, whole.loss)
    assert not whole.loss.requires_grad
    assert half.grad.dtype == torch.bfloat16


@pytest.mark.parametrize('align_corners', [False, True])
@pytest.mark.parametrize('full', [(24, 32), (27, 20), (6, 8)])
def test_a_sample_is_some_of_the_upsampled_scores(full, align_corners):
    low = torch.randn(2, 3, 6, 8, dtype=torch.float64)
    labels = torch.randint(0, 3, (2, *full))
    whole = F.interpolate(
        low, size=full, mode='bilinear', align_corners=align_corners
    )
    scores, some = upsampled_sample(low, labels, 4, align_corners)
    torch.testing.assert_close(scores, whole[..., ::4, ::4])
    assert torch.equal(some, labels[..., ::4, ::4])
