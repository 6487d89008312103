"""The fused loss against loops over pixels and classes."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck

from mmseg_margin.functional import (
    margin_calibration_loss,
    pixel_calibration_loss,
    reference_loss,
)
from tests.functional.builders import (
    IGNORE,
    eager,
    make_batch,
    value_and_gradient,
)

FORMS = ('paper', 'target', 'softmax')
every_form = pytest.mark.parametrize('form', FORMS)
jaccard_too = pytest.mark.parametrize('form', [*FORMS, 'jaccard'])
every_focus = pytest.mark.parametrize('focus', [0, 0.5, 2])


def slow_loss(
    scores,
    labels,
    rho_0k,
    rho_k0,
    form='paper',
    pos_weight=1.0,
    log_base=2.0,
    focus=0.0,
):
    """Eq. 16 written from the paper: a mean over labelled pixels."""
    base, K = log_base, scores.shape[1]
    total, labelled = torch.zeros((), dtype=scores.dtype), 0
    for s, y in zip(rows(scores), labels.flatten().tolist(), strict=True):
        if y == IGNORE:
            continue
        labelled += 1
        if form == 'softmax':
            exponents = [
                s[k] - s[y] + rho_0k[k] + rho_k0[y] for k in range(K) if k != y
            ]
            wrong = sum(base**exponent for exponent in exponents)
            term = torch.log1p(wrong) / math.log(base)
            factor = (2 * wrong / (1 + wrong)) ** focus
            total = total + pos_weight * factor * term
            continue
        for k in range(K):
            others = torch.stack([s[j] for j in range(K) if j != k])
            margin = s[k] - others.amax()
            if k == y:
                exponent, weight = rho_k0[k] - margin, pos_weight
            elif form == 'paper':
                exponent, weight = rho_0k[k] + margin, 1
            else:
                exponent, weight = rho_0k[k] + s[k] - s[y], 1
            term = torch.log1p(base**exponent) / math.log(base)
            factor = (2 / (1 + base**-exponent)) ** focus
            total = total + weight * factor * term
    return total / labelled


def rows(scores):
    return scores.movedim(1, -1).reshape(-1, scores.shape[1])


@every_form
@pytest.mark.parametrize(
    ('backend', 'num_classes', 'pos_weight', 'base', 'focus'),
    [
        ('eager', 2, 1.0, 2.0, 0.0),
        ('eager', 5, 5.0, math.e, 0.0),
        ('eager', 4, 1.0, 2.0, 1.5),
        ('compiled', 3, 3.0, math.e, 1.0),
    ],
)
def test_equals_the_slow_reference(
    form, backend, num_classes, pos_weight, base, focus
):
    batch = make_batch(num_classes, (2, 5, 7))
    settings = dict(
        form=form, pos_weight=pos_weight, log_base=base, focus=focus
    )
    expected = value_and_gradient(slow_loss, *batch, **settings)
    loss, gradient = value_and_gradient(
        margin_calibration_loss, *batch, backend=backend, **settings
    )
    assert loss == pytest.approx(float(expected[0]), rel=1e-10)
    torch.testing.assert_close(gradient, expected[1], rtol=0, atol=1e-8)


@every_focus
@every_form
def test_gradcheck(form, focus):
    scores, *others = make_batch(4, (2, 3, 3))
    settings = dict(form=form, focus=focus, reduction='none')
    assert gradcheck(
        lambda s: eager(s, *others, **settings), scores.requires_grad_()
    )


@every_form
@pytest.mark.parametrize(
    'scores',
    [[1.0, 1.0, 1.0], [1.0, 1.0, 0.0], [2.0, 1.0, 1.0], [0, 2.0, 2.0]],
)
@pytest.mark.parametrize('label', [0, 1])
def test_ties_share_evenly(form, scores, label):
    rho = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    scores = torch.tensor([scores], dtype=torch.float64)
    batch = scores, torch.tensor([label]), rho, rho
    expected = value_and_gradient(slow_loss, *batch, form=form)
    result = value_and_gradient(eager, *batch, form=form)
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


def test_the_target_form_never_raises_a_wrong_class():
    """And is never below the paper's."""
    batch = make_batch(6, (2, 8, 8))
    _, gradient = value_and_gradient(eager, *batch, form='target')
    wrong = torch.arange(6).view(1, 6, 1, 1) != batch[1].unsqueeze(1)
    assert (gradient[wrong] >= 0).all()
    paper, target = (
        eager(*batch, form=form, reduction='none') for form in FORMS[:2]
    )
    assert (target >= paper - 1e-12).all()


def test_all_ignored_is_a_connected_zero():
    scores, labels, *rho = make_batch(3, (1, 2, 2))
    loss, gradient = value_and_gradient(
        eager, scores, labels.fill_(IGNORE), *rho
    )
    assert loss == 0
    assert (gradient == 0).all()


@every_focus
@every_form
@pytest.mark.parametrize(
    'dtype', [torch.float32, torch.float16, torch.bfloat16]
)
def test_large_scores_stay_finite(form, dtype, focus):
    scores, *others = make_batch(5, (2, 4, 4))
    scores = (scores.sign() * 1e4).to(dtype)
    loss, gradient = value_and_gradient(
        eager, scores, *others, form=form, focus=focus
    )
    assert loss.dtype == torch.float32
    assert loss.isfinite()
    assert gradient.dtype == dtype
    assert gradient.isfinite().all()


@every_form
def test_any_memory_layout(form):
    scores, *others = make_batch(5, (2, 6, 8))
    expected = value_and_gradient(eager, scores, *others, form=form)
    last = scores.contiguous(memory_format=torch.channels_last)
    strided = scores.repeat_interleave(2, dim=3)[..., ::2]
    for layout in (last, strided):
        leaf = layout.detach().requires_grad_()
        loss = eager(leaf, *others, form=form)
        loss.backward()
        torch.testing.assert_close((loss.detach(), leaf.grad), expected)


def test_one_pixel_and_rows_of_pixels():
    scores, labels, *rho = make_batch(4, (1, 3, 5))
    expected = eager(scores, labels, *rho, reduction='none')
    result = eager(rows(scores), labels.flatten(), *rho, reduction='none')
    torch.testing.assert_close(result, expected.flatten())
    one = eager(scores[..., :1, :1], labels[:, :1, :1], *rho)
    assert one.isfinite()


def test_upstream_gradient_retained_graph_and_accumulation():
    """And the inputs are not modified."""
    scores, *others = batch = make_batch(4, (1, 3, 3))
    before = copy.deepcopy(batch)
    _, once = value_and_gradient(eager, *batch)
    leaf = scores.clone().requires_grad_()
    loss = 3.5 * eager(leaf, *others)
    loss.backward(retain_graph=True)
    torch.testing.assert_close(leaf.grad, 3.5 * once)
    loss.backward()
    torch.testing.assert_close(leaf.grad, 7.0 * once)
    torch.testing.assert_close(batch, before, rtol=0, atol=0)


@pytest.mark.parametrize('dtype', [torch.float64, torch.float16])
def test_weights_of_the_pixels(dtype):
    scores, labels, *rho = make_batch(4, (2, 6, 5), dtype=dtype)
    # Shares of a large batch, which AMP scales so that half precision holds
    # the gradient, though not the shares.
    weights = 1e-8 * torch.rand(labels.shape, dtype=torch.float64)

    def scaled(leaf, **settings):
        loss = pixel_calibration_loss(leaf, labels, *rho, **settings)
        factor = 1 if 'pixel_weight' in settings else weights
        return 2**16 * (factor * loss).sum()

    value, gradient = value_and_gradient(scaled, scores, pixel_weight=weights)
    expected = value_and_gradient(scaled, scores.double())
    tolerance = 1e-12 if dtype is torch.float64 else 2e-3
    assert gradient.dtype is dtype
    assert gradient.any()
    torch.testing.assert_close(
        (value.double(), gradient.double()),
        expected,
        rtol=tolerance,
        atol=tolerance * float(expected[1].abs().max()),
    )


@pytest.mark.parametrize('form', ['paper', 'target'])
def test_chunks_and_padding_make_no_difference(form):
    batch = make_batch(3, (2, 700, 90), dtype=torch.float32)
    whole = reference_loss(*batch, form=form)
    loss = eager(*batch, form=form)
    torch.testing.assert_close(loss, whole, check_dtype=False)


def test_inside_a_compiled_model():
    scores, *others = make_batch(3, (2, 4, 4), dtype=torch.float32)
    model = nn.Conv2d(3, 3, 1)
    results = []
    for transform in (lambda step: step, torch.compile):
        model.zero_grad()
        loss = transform(lambda x: eager(model(x), *others))(scores)
        loss.backward()
        results.append((loss.detach(), model.weight.grad.clone()))
    torch.testing.assert_close(*results)


@every_form
def test_vmap_and_second_derivatives_are_refused(form):
    scores, *others = make_batch(3, (2, 4, 4))

    def loss(scores):
        return eager(scores, *others, form=form)

    with pytest.raises(RuntimeError, match='setup_context'):
        torch.vmap(loss)(scores[None])
    scores.requires_grad_()
    for power in (1, 2):
        (gradient,) = torch.autograd.grad(
            loss(scores) ** power, scores, create_graph=True
        )
        with pytest.raises(RuntimeError, match='no second derivative'):
            torch.autograd.grad(gradient.sum(), scores)


@jaccard_too
def test_labels_that_are_no_class(form):
    scores, labels, *rho = make_batch(3, (1, 2, 2))
    for wrong in (3, -1, 2**32 + 1):
        labels[0, 0, 0] = wrong
        with pytest.raises(ValueError, match=f'Labels .{wrong}. lie outside'):
            eager(scores, labels, *rho, form=form)


@jaccard_too
def test_no_image_and_infinite_scores(form):
    empty = torch.zeros(0, 3, 4, 4), torch.zeros(0, 4, 4).long(), 0.1, 0.1
    loss, _ = value_and_gradient(eager, *empty, form=form)
    assert loss == 0
    scores = torch.zeros(1, 3, 2, 2)
    labels = torch.ones(1, 2, 2).long()
    for value in (math.inf, math.nan):
        scores[0, 1, 0, 0] = value
        loss = eager(scores, labels, 0.1, 0.1, form=form)
        assert not loss.isfinite()


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'scores': torch.zeros(2, 1, 4)}, 'at least two classes'),
        ({'labels': torch.zeros(2, 5).long()}, 'labels'),
        ({'form': 'other'}, "form='other'"),
        ({'reduction': 'max'}, "reduction='max'"),
        ({'backend': 'gpu'}, "backend='gpu'"),
    ],
)
def test_bad_arguments(change, message):
    arguments = dict(
        scores=torch.zeros(2, 3, 4),
        labels=torch.zeros(2, 4).long(),
        rho_0k=[0.1] * 3,
        rho_k0=0.0,
    )
    with pytest.raises(ValueError, match=message):
        margin_calibration_loss(**(arguments | change))
