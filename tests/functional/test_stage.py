"""The stage: every objective on full-size and on up-sampled scores."""

import copy
import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mmseg_margin.functional import (
    backend,
    margin_loss,
    upsampled_jaccard_loss,
    upsampled_margin_loss,
    upsampling,
)
from mmseg_margin.functional.stage import run_stage
from mmseg_margin.functional.upsampling import make_source
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
both_kernels = pytest.mark.parametrize('how', ['eager', 'compiled'])
close = torch.testing.assert_close


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


def loss_and_gradient(name, scores, labels, **options):
    loss = partial(objective_loss, name)
    return value_and_gradient(loss, scores, labels, **options)


def stage_results(name, scores, labels, factor=1.0, **options):
    """Loss, gradient and hits of up-sampled scores."""
    leaf = scores.detach().clone().requires_grad_()
    objective = make_objective(name, scores.shape[1])
    result = run_stage(leaf, labels, objective, **options)
    (factor * result.loss).backward()
    assert not result.hits.requires_grad
    return result.loss.detach(), leaf.grad, result.hits


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
    loss, actual, hits = stage_results(
        *(name, scores, labels, 3.0),
        pixel_weight=weight,
        align_corners=align_corners,
        backend='eager',
    )
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    close(loss, expected.detach(), rtol=tolerance, atol=tolerance)
    atol = 2 * tolerance * float(gradient.abs().max())
    close(actual, gradient, rtol=tolerance, atol=atol)
    assert hits == (whole.argmax(1) == labels).sum()


@every_objective
def test_compiled_it_is_the_same(name):
    options = dict(pixel_weight=torch.rand(2, 24, 20), align_corners=False)
    arguments = name, *two_images(3, (6, 5), (24, 20), torch.float32)
    compiled = stage_results(*arguments, **options, backend='compiled')
    close(compiled, stage_results(*arguments, **options, backend='eager'))


@pytest.mark.parametrize('reduction', ['mean', 'sum', 'none'])
def test_reductions_of_the_public_functions(reduction):
    scores, labels = two_images(4, (4, 4), (16, 16))
    options = dict(reduction=reduction, backend='eager')
    whole = upsample(scores, (16, 16))
    close(
        upsampled_margin_loss(scores, labels, 0.3, 0.1, **options),
        margin_loss(whole, labels, 0.3, 0.1, **options),
    )
    close(
        upsampled_jaccard_loss(scores, labels, **options),
        jaccard(whole, labels, reduction=reduction),
    )
    # The parts of the Jaccard objective add up.
    objective = make_objective('jaccard', 4)
    result = run_stage(scores, labels, objective, align_corners=False)
    alone = jaccard(whole, labels, ce_weight=0, reduction='sum')
    ce = F.cross_entropy(whole, labels, ignore_index=IGNORE, reduction='sum')
    close(result.ce, ce)
    close(result.loss, alone + 0.25 * ce)


@pytest.mark.parametrize('corners', [None, False])
@every_objective
def test_no_second_derivative_and_no_vmap(name, corners):
    full = (2, 3) if corners is None else (4, 6)
    scores, labels = two_images(3, (2, 3), full)
    loss = partial(objective_loss, name, labels=labels, align_corners=corners)
    leaf = scores.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    with pytest.raises(RuntimeError, match='no second derivative'):
        torch.autograd.grad(gradient.sum(), leaf)
    with pytest.raises(RuntimeError, match=r'setup_context|vmap|broadcast'):
        torch.vmap(loss)(scores[None])


@every_objective
@pytest.mark.parametrize(
    'dtype', [torch.float32, torch.float16, torch.bfloat16]
)
def test_half_scores_under_autocast_and_large_ones(name, dtype):
    scores, labels = two_images(3, (4, 4), (8, 8), dtype)
    run = partial(loss_and_gradient, name, align_corners=False)
    expected, gradient = run(scores.float(), labels=labels)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        loss, actual = run(scores, labels=labels)
    assert torch.equal(loss, expected)
    assert torch.equal(actual, gradient.to(dtype))
    loss, gradient = run(scores.sign() * 1e4, labels=labels)
    assert (loss.dtype, gradient.dtype) == (torch.float32, dtype)
    assert loss.isfinite()
    assert gradient.isfinite().all()


@every_objective
def test_half_precision_neither_underflows_nor_overflows(name):
    """A pixel's weight is tiny until AMP scales it; its loss may be large."""
    scores, labels, *_ = make_batch(3, (1, 4, 4), dtype=torch.float16)
    _, wide = loss_and_gradient(name, scores.float(), labels, reduction='sum')
    for factor in (1e-8, 1e6):
        leaf = scores.clone().requires_grad_()
        loss = objective_loss(name, leaf, labels, reduction='none')
        (factor * loss.double()).sum().mul(0.01 / factor).backward()
        close(leaf.grad.float(), 0.01 * wide, rtol=2e-3, atol=1e-6)


@every_objective
@both_kernels
def test_infinite_scores_are_not_hidden_and_masked_classes_are_free(name, how):
    """Some heads mask a class with the lowest finite score."""
    scores, labels, *_ = make_batch(4, (1, 4, 4), dtype=torch.float32)
    labels[labels == 0] = 1
    scores[:, 0] = torch.finfo(torch.float32).min
    loss, gradient = loss_and_gradient(name, scores, labels, backend=how)
    assert loss.isfinite()
    assert gradient.isfinite().all()
    for value in (math.inf, math.nan):
        scores = torch.zeros(1, 4, 4, 4)
        scores[0, 1, 0, 0] = value
        labels = torch.ones(1, 4, 4).long()
        assert not objective_loss(name, scores, labels, backend=how).isfinite()


@every_objective
def test_any_memory_layout_and_rows_of_pixels(name):
    scores, labels, *_ = make_batch(4, (2, 6, 8))
    expected = loss_and_gradient(name, scores, labels)
    for layout in (
        scores.contiguous(memory_format=torch.channels_last),
        scores.repeat_interleave(2, dim=3)[..., ::2],
        scores.transpose(2, 3).contiguous().transpose(2, 3),
    ):
        leaf = layout.detach().requires_grad_()
        value = objective_loss(name, leaf, labels)
        value.backward()
        close((value.detach(), leaf.grad), expected)
    each = objective_loss(name, scores[:1], labels[:1], reduction='none')
    rows = scores[0].movedim(0, -1).reshape(-1, 4), labels[0].flatten()
    close(objective_loss(name, *rows, reduction='none'), each.flatten())
    points = scores[:1].flatten(2), labels[:1].flatten(1)
    close(objective_loss(name, *points, reduction='none'), each.flatten(1))
    one = objective_loss(name, scores[..., :1, :1], labels[:, :1, :1])
    assert one.isfinite()


@every_objective
@pytest.mark.parametrize('low', [(3, 3), (6, 3)])
def test_upstream_gradient_retained_graph_and_accumulation(name, low):
    """And the inputs are not modified."""
    scores, labels, *_ = batch = make_batch(4, (1, 6, 6), low)
    before = copy.deepcopy(batch)
    _, once = loss_and_gradient(name, scores, labels, align_corners=False)
    leaf = scores.clone().requires_grad_()
    value = 3.5 * objective_loss(name, leaf, labels, align_corners=False)
    value.backward(retain_graph=True)
    close(leaf.grad, 3.5 * once)
    value.backward()
    close(leaf.grad, 7.0 * once)
    close(batch, before, rtol=0, atol=0)


@pytest.mark.parametrize('name', ['margin', 'jaccard'])
def test_inside_a_compiled_model(name):
    scores, labels, *_ = make_batch(3, (2, 4, 4), dtype=torch.float32)
    model = nn.Conv2d(3, 3, 1)

    def step(images):
        return objective_loss(name, model(images), labels)

    compiled = value_and_gradient(torch.compile(step), scores)
    close(compiled, value_and_gradient(step, scores))


@every_objective
@pytest.mark.parametrize(('corners', 'side'), [(None, 8), (False, 16)])
def test_a_device_is_never_waited_for(name, corners, side):
    """On the meta device, reading a value or mixing in the CPU raises."""
    scores = torch.empty(2, 3, 8, 8, device='meta', requires_grad=True)
    labels = torch.empty(2, side, side, dtype=torch.long, device='meta')
    loss = objective_loss(
        name, scores, labels, align_corners=corners, backend='auto'
    )
    loss.backward()
    assert scores.grad.shape == scores.shape


@every_objective
def test_labels(name):
    """Those that are no class, those of any type, and none at all."""
    scores, labels, *_ = make_batch(3, (1, 4, 4))
    expected = objective_loss(name, scores, labels)
    assert objective_loss(name, scores, labels.byte()) == expected
    # No uint8 is -100, so nothing is ignored.
    known = labels.clamp(max=2)
    everything = objective_loss(name, scores, known)
    short = objective_loss(name, scores, known.byte(), ignore_index=-100)
    assert short == everything
    ignored = torch.full_like(labels, IGNORE)
    for batch in ((scores, ignored), (scores[:0], labels[:0])):
        loss, gradient = loss_and_gradient(name, *batch)
        assert loss == 0
        assert (gradient == 0).all()
    for wrong in (3, -1, 2**32 + 1):
        labels[0, 0, 0] = wrong
        with pytest.raises(ValueError, match=f'Labels .{wrong}. lie outside'):
            objective_loss(name, scores, labels)


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'scores': torch.zeros(2, 1, 4)}, 'at least two classes'),
        ({'scores': torch.zeros(2, 3, 2)}, 'up-samples'),
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
    with pytest.raises(ValueError, match='as_tensor'):
        margin_loss(torch.zeros(1, 2), torch.zeros(1).long().numpy(), 0, 0)


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
    source = make_source(low, labels, low.new_ones(()), align_corners)
    _, *parts = zip(*source.sample(4), strict=True)
    scores, (some,) = (torch.cat(part, 1) for part in parts)
    inside = some >= 0
    order = some[inside].argsort()
    assert torch.equal(some[inside][order], labels[:, ::4, ::4].flatten())
    close(
        scores[:, inside][:, order],
        whole[..., ::4, ::4].transpose(0, 1).flatten(1),
    )
    at = (source.labels[1] % 7 == 3).nonzero(as_tuple=True)
    place = source.labels[1][at] - labels[1].min()
    close(source.gather(1, at), whole[1].flatten(1)[:, place])
