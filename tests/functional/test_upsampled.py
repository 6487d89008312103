"""The fused stage against up-sampling, loss and accuracy one by one."""

import pytest
import torch
import torch.nn.functional as F

from mmseg_margin.functional import (
    backend,
    jaccard_weights,
    margin_calibration_loss,
    upsampled_margin_loss,
    upsampled_stage,
)
from mmseg_margin.functional.upsampling import upsampled
from tests.functional.builders import IGNORE, eager, make_batch


@pytest.fixture(autouse=True)
def _many_small_tiles(monkeypatch):
    monkeypatch.setattr(backend, 'EAGER_PIXELS', 100)
    monkeypatch.setattr(backend, 'EAGER_SCORES', 100)


def make(K, low, full, dtype=torch.float64):
    """Two images, of which one is half ignored."""
    batch = make_batch(K, (2, *full), low, dtype, ignored=0)
    batch[1][0, : full[0] // 2] = IGNORE
    return batch


def upsample(scores, size, align_corners=False):
    return F.interpolate(
        scores, size=size, mode='bilinear', align_corners=align_corners
    )


@pytest.mark.parametrize(
    ('K', 'low', 'full', 'align_corners', 'settings'),
    [
        (2, (9, 5), (9, 5), False, dict(form='paper')),
        (19, (13, 7), (26, 14), False, dict(form='softmax', focus=2.0)),
        (171, (5, 3), (20, 12), False, dict(form='jaccard', log_share=0.25)),
        (5, (7, 6), (56, 24), False, dict(form='target', pos_weight=3.0)),
        (5, (9, 6), (27, 18), False, dict(form='jaccard')),
        (5, (9, 6), (33, 21), True, dict(form='paper', focus=1.0)),
        (5, (9, 6), (32, 21), False, dict(form='softmax', log_base='e')),
        (5, (9, 6), (18, 12), True, dict(form='paper', log_base='e')),
    ],
)
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_it_is_exact(K, low, full, align_corners, settings, dtype):
    scores, labels, *rho = make(K, low, full, dtype)
    weight = torch.rand(labels.shape, dtype=dtype)
    scores.requires_grad_()
    if settings['form'] == 'jaccard':
        share = torch.full((K,), 1 / K)
        tables = jaccard_weights(share, torch.rand(2, K, 64))
        settings = dict(settings, tables=tables)
    whole = upsample(scores, full, align_corners)
    losses = eager(whole, labels, *rho, reduction='none', **settings)
    expected = (weight * losses).sum()
    (gradient,) = torch.autograd.grad(3 * expected, scores)
    result = upsampled_stage(
        *(scores, labels, *rho),
        pixel_weight=weight,
        align_corners=align_corners,
        backend='eager',
        **settings,
    )
    (3 * result.loss).backward()
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    largest = float(gradient.abs().max())
    torch.testing.assert_close(
        result.loss, expected, rtol=tolerance, atol=tolerance
    )
    torch.testing.assert_close(
        scores.grad, gradient, rtol=tolerance, atol=2 * tolerance * largest
    )
    assert result.hits == (whole.argmax(1) == labels).sum()
    assert not result.hits.requires_grad


def test_compiled_it_is_the_same():
    scores, *others = make(3, (6, 5), (24, 20), torch.float32)
    settings = dict(form='jaccard', log_share=0.25)
    settings['pixel_weight'] = torch.rand(2, 24, 20)
    results = []
    for how in ('eager', 'compiled'):
        leaf = scores.clone().requires_grad_()
        result = upsampled_stage(leaf, *others, **settings, backend=how)
        result.loss.backward()
        results.append((result.loss.detach(), leaf.grad, result.hits))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize('reduction', ['mean', 'sum', 'none'])
def test_reductions(reduction):
    scores, *others = make(4, (4, 4), (16, 16))
    arguments = dict(reduction=reduction, backend='eager')
    whole = upsample(scores, (16, 16))
    expected = margin_calibration_loss(whole, *others, **arguments)
    result = upsampled_margin_loss(scores, *others, **arguments)
    torch.testing.assert_close(result, expected)


def test_gradcheck_and_no_second_derivative():
    scores, *others = make(3, (2, 3), (4, 6))

    def loss(scores):
        return upsampled_margin_loss(
            scores, *others, form='softmax', backend='eager'
        )

    assert torch.autograd.gradcheck(loss, scores.requires_grad_())
    (gradient,) = torch.autograd.grad(loss(scores), scores, create_graph=True)
    with pytest.raises(RuntimeError, match='no second derivative'):
        torch.autograd.grad(gradient.sum(), scores)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_scores_under_autocast_and_a_retained_graph(dtype):
    half, *others = make(3, (4, 4), (8, 8), dtype)
    whole = upsampled_margin_loss(half.float(), *others, backend='eager')
    half.requires_grad_()
    with torch.autocast('cpu', dtype=torch.bfloat16):
        loss = upsampled_margin_loss(half, *others, backend='eager')
    loss.backward(retain_graph=True)
    once = half.grad.clone()
    loss.backward()
    assert torch.equal(loss, whole)
    assert half.grad.dtype == dtype
    torch.testing.assert_close(half.grad, 2 * once)


@pytest.mark.parametrize('align_corners', [False, True])
@pytest.mark.parametrize(
    'full', [(24, 32), (21, 29), (48, 24), (18, 16), (27, 20), (6, 8)]
)
def test_a_sample_is_some_of_the_upsampled_scores(full, align_corners):
    low = torch.randn(2, 3, 6, 8, dtype=torch.float64)
    # Each label tells where its pixel is.
    labels = torch.arange(2 * full[0] * full[1]).view(2, *full)
    whole = upsample(low, full, align_corners)
    sample = upsampled(low, labels, None, align_corners).sample(4)
    scores, some = (
        torch.cat([part.flatten(-2) for part in parts], -1)
        for parts in zip(*sample, strict=True)
    )
    inside = some >= 0
    order = some[inside].argsort()
    assert torch.equal(some[inside][order], labels[:, ::4, ::4].flatten())
    torch.testing.assert_close(
        scores[:, inside][:, order],
        whole[..., ::4, ::4].transpose(0, 1).flatten(1),
    )
