"""The stage: every objective on full-size and on up-sampled scores."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mmseg_margin.functional import (
    backend,
    margin_loss,
    run_stage,
    upsampled_jaccard_loss,
    upsampled_margin_loss,
    upsampling,
)
from mmseg_margin.functional.upsampling import upsampled
from tests.functional.builders import (
    IGNORE,
    OBJECTIVES,
    jaccard,
    make_batch,
    make_objective,
    objective_loss,
    value_and_gradient,
)

every_objective = pytest.mark.parametrize('name', OBJECTIVES)


@pytest.fixture(autouse=True)
def _many_small_pieces(monkeypatch):
    monkeypatch.setattr(backend, 'EAGER_PIXELS', 100)
    monkeypatch.setattr(backend, 'EAGER_SCORES', 100)


def two_images(K, low, full, dtype=torch.float64):
    """Two images, of which one is half ignored."""
    scores, labels, *_ = make_batch(K, (2, *full), low, dtype, ignored=0)
    labels[0, : full[0] // 2] = IGNORE
    return scores, labels


def upsample(scores, size, align_corners=False):
    return F.interpolate(
        scores, size=size, mode='bilinear', align_corners=align_corners
    )


@pytest.mark.parametrize(
    ('K', 'low', 'full', 'align_corners', 'name'),
    [
        (2, (9, 5), (9, 5), False, 'margin'),
        (19, (13, 7), (26, 14), False, 'focal'),
        (171, (5, 3), (20, 12), False, 'jaccard'),
        (5, (7, 6), (56, 24), False, 'authors'),
        (5, (9, 6), (27, 18), False, 'jaccard'),
        (5, (9, 6), (33, 21), True, 'margin'),
        (5, (9, 6), (32, 21), False, 'ce'),
        (5, (9, 6), (18, 12), True, 'authors'),
    ],
)
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('small', [0, 2**18])
def test_up_sampled_it_is_exact(
    K, low, full, align_corners, name, dtype, small, monkeypatch
):
    monkeypatch.setattr(upsampling, 'SMALL_IMAGE', small)
    scores, labels = two_images(K, low, full, dtype)
    weight = torch.rand(labels.shape, dtype=dtype)
    scores.requires_grad_()
    whole = upsample(scores, full, align_corners)
    losses = objective_loss(name, whole, labels, reduction='none')
    expected = (weight * losses).sum()
    (gradient,) = torch.autograd.grad(3 * expected, scores)
    result = run_stage(
        scores,
        labels,
        make_objective(name, K),
        pixel_weight=weight,
        align_corners=align_corners,
        backend='eager',
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


def test_the_parts_of_the_jaccard_objective_add_up():
    scores, labels = two_images(3, (6, 5), (24, 20))
    result = run_stage(
        scores, labels, make_objective('jaccard', 3), align_corners=False
    )
    whole = upsample(scores, (24, 20))
    alone = jaccard(whole, labels, ce_weight=0, reduction='sum')
    ce = F.cross_entropy(whole, labels, ignore_index=IGNORE, reduction='sum')
    torch.testing.assert_close(result.log_loss, ce)
    torch.testing.assert_close(result.loss, alone + 0.25 * ce)


@every_objective
def test_compiled_it_is_the_same(name):
    scores, labels = two_images(3, (6, 5), (24, 20), torch.float32)
    weight = torch.rand(2, 24, 20)
    results = []
    for how in ('eager', 'compiled'):
        leaf = scores.clone().requires_grad_()
        result = run_stage(
            leaf,
            labels,
            make_objective(name, 3),
            pixel_weight=weight,
            align_corners=False,
            backend=how,
        )
        result.loss.backward()
        results.append((result.loss.detach(), leaf.grad, result.hits))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize('reduction', ['mean', 'sum', 'none'])
def test_reductions(reduction):
    scores, labels = two_images(4, (4, 4), (16, 16))
    options = dict(reduction=reduction, backend='eager')
    whole = upsample(scores, (16, 16))
    torch.testing.assert_close(
        upsampled_margin_loss(scores, labels, 0.3, 0.1, **options),
        margin_loss(whole, labels, 0.3, 0.1, **options),
    )
    torch.testing.assert_close(
        upsampled_jaccard_loss(scores, labels, **options),
        jaccard(whole, labels, reduction=reduction),
    )


@pytest.mark.parametrize('upsampling', [False, True])
@every_objective
def test_no_second_derivative(name, upsampling):
    scores, labels = two_images(3, (2, 3), (4, 6) if upsampling else (2, 3))
    corners = False if upsampling else None

    def loss(scores):
        return objective_loss(name, scores, labels, align_corners=corners)

    scores.requires_grad_()
    (gradient,) = torch.autograd.grad(loss(scores), scores, create_graph=True)
    with pytest.raises(RuntimeError, match='no second derivative'):
        torch.autograd.grad(gradient.sum(), scores)


def test_vmap_is_refused():
    scores, labels = two_images(3, (2, 3), (2, 3))
    with pytest.raises(RuntimeError, match='setup_context'):
        torch.vmap(lambda s: objective_loss('margin', s, labels))(scores[None])


@every_objective
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_scores_under_autocast_and_a_retained_graph(name, dtype):
    half, labels = two_images(3, (4, 4), (8, 8), dtype)
    whole = objective_loss(name, half.float(), labels, align_corners=False)
    half.requires_grad_()
    with torch.autocast('cpu', dtype=torch.bfloat16):
        loss = objective_loss(name, half, labels, align_corners=False)
    loss.backward(retain_graph=True)
    once = half.grad.clone()
    loss.backward()
    assert torch.equal(loss, whole)
    assert half.grad.dtype == dtype
    torch.testing.assert_close(half.grad, 2 * once)


@every_objective
def test_half_precision_neither_underflows_nor_overflows(name):
    """A pixel's weight is tiny until AMP scales it; its loss may be large."""
    scores, labels, *_ = make_batch(3, (1, 4, 4), dtype=torch.float16)
    for factor in (1e-8, 1e6):
        leaf = scores.clone().requires_grad_()
        loss = objective_loss(name, leaf, labels, reduction='none')
        (factor * loss.double()).sum().mul(0.01 / factor).backward()
        wide = scores.float().requires_grad_()
        objective_loss(name, wide, labels, reduction='sum').backward()
        torch.testing.assert_close(
            leaf.grad.float(), 0.01 * wide.grad, rtol=2e-3, atol=1e-6
        )


@every_objective
@pytest.mark.parametrize(
    'dtype', [torch.float32, torch.float16, torch.bfloat16]
)
def test_large_scores_stay_finite(name, dtype):
    scores, labels, *_ = make_batch(5, (2, 4, 4))
    scores = (scores.sign() * 1e4).to(dtype)
    loss, gradient = value_and_gradient(
        lambda s: objective_loss(name, s, labels), scores
    )
    assert loss.dtype == torch.float32
    assert loss.isfinite()
    assert gradient.dtype == dtype
    assert gradient.isfinite().all()


@every_objective
@pytest.mark.parametrize('how', ['eager', 'compiled'])
def test_a_masked_class_costs_ignored_pixels_nothing(name, how):
    """Some heads mask a class with the lowest finite score."""
    scores, labels, *_ = make_batch(4, (1, 4, 4), dtype=torch.float32)
    labels[labels == 0] = 1
    scores[:, 0] = torch.finfo(torch.float32).min
    loss, gradient = value_and_gradient(
        lambda s: objective_loss(name, s, labels, backend=how), scores
    )
    assert loss.isfinite()
    assert gradient.isfinite().all()


@every_objective
def test_any_memory_layout(name):
    scores, labels, *_ = make_batch(5, (2, 6, 8))

    def loss(scores):
        return objective_loss(name, scores, labels)

    expected = value_and_gradient(loss, scores)
    last = scores.contiguous(memory_format=torch.channels_last)
    strided = scores.repeat_interleave(2, dim=3)[..., ::2]
    for layout in (last, strided):
        leaf = layout.detach().requires_grad_()
        value = loss(leaf)
        value.backward()
        torch.testing.assert_close((value.detach(), leaf.grad), expected)


@every_objective
def test_rows_of_pixels_and_one_pixel(name):
    scores, labels, *_ = make_batch(4, (1, 3, 5))
    expected = objective_loss(name, scores, labels, reduction='none')
    rows = scores.movedim(1, -1).reshape(-1, 4)
    result = objective_loss(name, rows, labels.flatten(), reduction='none')
    torch.testing.assert_close(result, expected.flatten())
    one = objective_loss(name, scores[..., :1, :1], labels[:, :1, :1])
    assert one.isfinite()


@every_objective
def test_upstream_gradient_retained_graph_and_accumulation(name):
    """And the inputs are not modified."""
    scores, labels, *_ = batch = make_batch(4, (1, 3, 3))
    before = copy.deepcopy(batch)

    def loss(scores):
        return objective_loss(name, scores, labels)

    _, once = value_and_gradient(loss, scores)
    leaf = scores.clone().requires_grad_()
    value = 3.5 * loss(leaf)
    value.backward(retain_graph=True)
    torch.testing.assert_close(leaf.grad, 3.5 * once)
    value.backward()
    torch.testing.assert_close(leaf.grad, 7.0 * once)
    torch.testing.assert_close(batch, before, rtol=0, atol=0)


@pytest.mark.parametrize('name', ['margin', 'jaccard'])
def test_inside_a_compiled_model(name):
    scores, labels, *_ = make_batch(3, (2, 4, 4), dtype=torch.float32)
    model = nn.Conv2d(3, 3, 1)
    results = []
    for transform in (lambda step: step, torch.compile):
        model.zero_grad()
        step = transform(lambda x: objective_loss(name, model(x), labels))
        loss = step(scores)
        loss.backward()
        results.append((loss.detach(), model.weight.grad.clone()))
    torch.testing.assert_close(*results)


@every_objective
@pytest.mark.parametrize('corners', [None, False])
def test_a_device_is_never_waited_for(name, corners):
    """On the meta device, reading a value or mixing in the CPU raises."""
    K = 3
    scores = torch.empty(2, K, 8, 8, device='meta', requires_grad=True)
    side = 8 if corners is None else 16
    labels = torch.empty(2, side, side, dtype=torch.long, device='meta')
    loss = objective_loss(
        name, scores, labels, align_corners=corners, backend='auto'
    )
    loss.backward()
    assert scores.grad.shape == scores.shape


@every_objective
def test_labels_that_are_no_class(name):
    scores, labels, *_ = make_batch(3, (1, 2, 2))
    for wrong in (3, -1, 2**32 + 1):
        labels[0, 0, 0] = wrong
        with pytest.raises(ValueError, match=f'Labels .{wrong}. lie outside'):
            objective_loss(name, scores, labels)


@every_objective
def test_labels_of_any_integer_type(name):
    scores, labels, *_ = make_batch(3, (1, 4, 4))
    expected = objective_loss(name, scores, labels)
    assert objective_loss(name, scores, labels.byte()) == expected
    # No uint8 is -100, so nothing is ignored.
    labels = labels.clamp(max=2)
    everything = objective_loss(name, scores, labels)
    short = objective_loss(name, scores, labels.byte(), ignore_index=-100)
    assert short == everything


@every_objective
def test_all_ignored_or_no_image_is_a_connected_zero(name):
    scores, labels, *_ = make_batch(3, (1, 2, 2))
    labels.fill_(IGNORE)
    for batch in ((scores, labels), (scores[:0], labels[:0])):
        loss, gradient = value_and_gradient(
            lambda s, y: objective_loss(name, s, y), *batch
        )
        assert loss == 0
        assert (gradient == 0).all()


@every_objective
@pytest.mark.parametrize('how', ['eager', 'compiled'])
def test_infinite_scores_are_not_hidden(name, how):
    labels = torch.ones(1, 2, 2).long()
    for value in (math.inf, math.nan):
        scores = torch.zeros(1, 3, 2, 2)
        scores[0, 1, 0, 0] = value
        loss = objective_loss(name, scores, labels, backend=how)
        assert not loss.isfinite()


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'scores': torch.zeros(2, 1, 4)}, 'at least two classes'),
        ({'labels': torch.zeros(2, 5).long()}, r'labels \(N, \.\.\.\)'),
        ({'labels': torch.zeros(2, 4)}, 'Labels are integers'),
        ({'pixel_weight': torch.ones(4, 2)}, r'like the labels \(2, 4\)'),
        ({'backend': 'gpu'}, "backend='gpu'"),
    ],
)
def test_bad_arguments(change, message):
    arguments = dict(
        scores=torch.zeros(2, 3, 4),
        labels=torch.zeros(2, 4).long(),
        objective=make_objective('margin', 3),
    )
    with pytest.raises(ValueError, match=message):
        run_stage(**(arguments | change))
    with pytest.raises(ValueError, match="reduction='max'"):
        margin_loss(*map(torch.zeros, [(1, 2), 1]), 0, 0, reduction='max')


@pytest.mark.parametrize('align_corners', [False, True])
@pytest.mark.parametrize(
    'full', [(24, 32), (21, 29), (48, 24), (18, 16), (27, 20), (6, 8)]
)
def test_a_sample_is_some_of_the_upsampled_scores(
    full, align_corners, monkeypatch
):
    monkeypatch.setattr(upsampling, 'SMALL_IMAGE', 0)
    low = torch.randn(2, 3, 6, 8, dtype=torch.float64)
    # Each label is the position of its pixel.
    labels = torch.arange(2 * full[0] * full[1]).view(2, *full)
    whole = upsample(low, full, align_corners)
    sample = upsampled(low, labels, low.new_ones(()), align_corners).sample(4)
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
