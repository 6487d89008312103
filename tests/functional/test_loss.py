"""The fused loss against loops over pixels and classes."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck

from mmseg_margin.functional import margin_calibration_loss, reference_loss

FORMS = ('paper', 'target', 'softmax')
IGNORE = 255


def slow_loss(
    scores, labels, rho_0k, rho_k0, form, pos_weight, base, focus=0.0
):
    """Eq. 16 written from the paper: a mean over labelled pixels."""
    pixels, K = scores.shape
    total, labelled = torch.zeros((), dtype=scores.dtype), 0
    for i in range(pixels):
        y = int(labels[i])
        if y == IGNORE:
            continue
        labelled += 1
        if form == 'softmax':
            exponents = [
                scores[i, k] - scores[i, y] + rho_0k[k] + rho_k0[y]
                for k in range(K)
                if k != y
            ]
            wrong = sum(base**exponent for exponent in exponents)
            term = torch.log1p(wrong) / math.log(base)
            factor = (2 * wrong / (1 + wrong)) ** focus
            total = total + pos_weight * factor * term
            continue
        for k in range(K):
            others = torch.stack([scores[i, j] for j in range(K) if j != k])
            margin = scores[i, k] - others.amax()
            if k == y:
                exponent, weight = rho_k0[k] - margin, pos_weight
            elif form == 'paper':
                exponent, weight = rho_0k[k] + margin, 1
            else:
                difference = scores[i, k] - scores[i, y]
                exponent, weight = rho_0k[k] + difference, 1
            term = torch.log1p(base**exponent) / math.log(base)
            factor = (2 / (1 + base**-exponent)) ** focus
            total = total + weight * factor * term
    return total / labelled


def make(K, shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(
        shape[0], K, *shape[1:], generator=generator, dtype=torch.float64
    )
    labels = torch.randint(0, K, shape, generator=generator)
    labels[torch.rand(shape, generator=generator) < 0.2] = IGNORE
    rho_0k, rho_k0 = torch.rand(2, K, generator=generator, dtype=torch.float64)
    return (2 * scores).to(dtype), labels, rho_0k, rho_k0


def rows(scores):
    return scores.movedim(1, -1).reshape(-1, scores.shape[1])


def gradient_of(function, scores):
    scores = scores.detach().clone().requires_grad_()
    loss = function(scores)
    loss.backward()
    return loss.detach(), scores.grad


@pytest.mark.parametrize('form', FORMS)
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
    scores, labels, rho_0k, rho_k0 = make(num_classes, (2, 5, 7))
    expected, expected_gradient = gradient_of(
        lambda s: slow_loss(
            rows(s),
            labels.flatten(),
            rho_0k,
            rho_k0,
            form,
            pos_weight,
            base,
            focus,
        ),
        scores,
    )
    loss, gradient = gradient_of(
        lambda s: margin_calibration_loss(
            s,
            labels,
            rho_0k,
            rho_k0,
            form=form,
            pos_weight=pos_weight,
            log_base=base,
            focus=focus,
            backend=backend,
        ),
        scores,
    )
    assert loss == pytest.approx(float(expected), rel=1e-10)
    torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-8)


@pytest.mark.parametrize('focus', [0, 0.5, 2])
@pytest.mark.parametrize('form', FORMS)
def test_gradcheck(form, focus):
    scores, labels, rho_0k, rho_k0 = make(4, (2, 3, 3))
    assert gradcheck(
        lambda s: margin_calibration_loss(
            s,
            labels,
            rho_0k,
            rho_k0,
            form=form,
            focus=focus,
            reduction='none',
            backend='eager',
        ),
        scores.requires_grad_(),
    )


@pytest.mark.parametrize('form', FORMS)
@pytest.mark.parametrize(
    'scores',
    [
        [[1.0, 1.0, 1.0]],
        [[1.0, 1.0, 0.0]],
        [[2.0, 1.0, 1.0]],
        [[0.0, 2.0, 2.0]],
    ],
)
@pytest.mark.parametrize('label', [0, 1])
def test_ties_share_evenly(form, scores, label):
    scores = torch.tensor(scores, dtype=torch.float64)
    labels = torch.tensor([label])
    rho = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    expected = gradient_of(
        lambda s: slow_loss(s, labels, rho, rho, form, 1.0, 2.0), scores
    )
    result = gradient_of(
        lambda s: margin_calibration_loss(
            s, labels, rho, rho, form=form, backend='eager'
        ),
        scores,
    )
    torch.testing.assert_close(result, expected)


def eager(scores, labels, rho_0k, rho_k0, **kwargs):
    return margin_calibration_loss(
        scores, labels, rho_0k, rho_k0, backend='eager', **kwargs
    )


def test_a_wrong_top_class_is_pushed_as_documented():
    """Near uniform scores its gradient is (3 + w - K) / 2."""
    K = 8
    scores = torch.full((1, K), 0.0, dtype=torch.float64)
    scores[0, 3] = 1e-9
    for w, expected in ((1.0, (4 - K) / 2), (float(K), 1.5)):
        _, gradient = gradient_of(
            lambda s, w=w: eager(s, torch.tensor([0]), 0, 0, pos_weight=w),
            scores,
        )
        assert gradient[0, 3] == pytest.approx(expected, abs=1e-6)


def test_the_target_form_never_raises_a_wrong_class():
    scores, labels, rho_0k, rho_k0 = make(6, (2, 8, 8))
    _, gradient = gradient_of(
        lambda s: eager(s, labels, rho_0k, rho_k0, form='target'), scores
    )
    wrong = torch.arange(6).view(1, 6, 1, 1) != labels.unsqueeze(1)
    assert (gradient[wrong] >= 0).all()


def test_the_target_form_is_never_below_the_papers():
    scores, labels, rho_0k, rho_k0 = make(6, (2, 8, 8))
    losses = [
        eager(scores, labels, rho_0k, rho_k0, form=form, reduction='none')
        for form in FORMS
    ]
    assert (losses[1] >= losses[0] - 1e-12).all()


def test_all_ignored_is_a_connected_zero():
    scores, labels, rho_0k, rho_k0 = make(3, (1, 2, 2))
    loss, gradient = gradient_of(
        lambda s: eager(s, torch.full_like(labels, 255), rho_0k, rho_k0),
        scores,
    )
    assert loss == 0
    assert (gradient == 0).all()


@pytest.mark.parametrize('focus', [0, 0.5, 2])
@pytest.mark.parametrize('form', FORMS)
@pytest.mark.parametrize(
    'dtype', [torch.float32, torch.float16, torch.bfloat16]
)
def test_large_scores_stay_finite(form, dtype, focus):
    scores, labels, rho_0k, rho_k0 = make(5, (2, 4, 4))
    scores = (scores.sign() * 1e4).to(dtype)
    loss, gradient = gradient_of(
        lambda s: eager(s, labels, rho_0k, rho_k0, form=form, focus=focus),
        scores,
    )
    assert loss.dtype == torch.float32
    assert loss.isfinite()
    assert gradient.dtype == dtype
    assert gradient.isfinite().all()


@pytest.mark.parametrize('form', FORMS)
def test_any_memory_layout(form):
    scores, labels, rho_0k, rho_k0 = make(5, (2, 6, 8))
    expected = gradient_of(
        lambda s: eager(s, labels, rho_0k, rho_k0, form=form), scores
    )
    last = scores.contiguous(memory_format=torch.channels_last)
    strided = scores.repeat_interleave(2, dim=3)[..., ::2]
    for layout in (last, strided):
        leaf = layout.detach().requires_grad_()
        loss = eager(leaf, labels, rho_0k, rho_k0, form=form)
        loss.backward()
        torch.testing.assert_close((loss.detach(), leaf.grad), expected)


def test_one_pixel_and_rows_of_pixels():
    scores, labels, rho_0k, rho_k0 = make(4, (1, 3, 5))
    expected = eager(scores, labels, rho_0k, rho_k0, reduction='none')
    result = eager(
        rows(scores), labels.flatten(), rho_0k, rho_k0, reduction='none'
    )
    torch.testing.assert_close(result, expected.flatten())
    one = eager(scores[..., :1, :1], labels[:, :1, :1], rho_0k, rho_k0)
    assert one.isfinite()


def test_upstream_gradient_retained_graph_and_accumulation():
    scores, labels, rho_0k, rho_k0 = make(4, (1, 3, 3))
    _, once = gradient_of(lambda s: eager(s, labels, rho_0k, rho_k0), scores)
    leaf = scores.clone().requires_grad_()
    loss = 3.5 * eager(leaf, labels, rho_0k, rho_k0)
    loss.backward(retain_graph=True)
    torch.testing.assert_close(leaf.grad, 3.5 * once)
    loss.backward()
    torch.testing.assert_close(leaf.grad, 7.0 * once)


def test_inputs_are_not_modified():
    scores, labels, rho_0k, rho_k0 = make(4, (1, 3, 3))
    inputs = (scores, labels, rho_0k, rho_k0)
    before = copy.deepcopy(inputs)
    gradient_of(lambda s: eager(s, *inputs[1:]), scores)
    torch.testing.assert_close(inputs, before, rtol=0, atol=0)


@pytest.mark.parametrize('form', ['paper', 'target'])
def test_chunks_and_padding_make_no_difference(form):
    scores, labels, rho_0k, rho_k0 = make(3, (2, 700, 90), dtype=torch.float32)
    whole = reference_loss(scores, labels, rho_0k, rho_k0, form=form)
    loss = eager(scores, labels, rho_0k, rho_k0, form=form)
    torch.testing.assert_close(loss, whole, check_dtype=False)


def test_inside_a_compiled_model():
    scores, labels, rho_0k, rho_k0 = make(3, (2, 4, 4), dtype=torch.float32)
    model = nn.Conv2d(3, 3, 1)

    def step(x):
        return eager(model(x), labels, rho_0k, rho_k0)

    expected = step(scores)
    expected.backward()
    expected_gradient = model.weight.grad.clone()
    model.zero_grad()
    loss = torch.compile(step)(scores)
    loss.backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(model.weight.grad, expected_gradient)


@pytest.mark.parametrize('form', FORMS)
def test_vmap_and_second_derivatives_are_refused(form):
    scores, labels, rho_0k, rho_k0 = make(3, (2, 4, 4))

    def loss(scores):
        return eager(scores, labels, rho_0k, rho_k0, form=form)

    with pytest.raises(RuntimeError, match='setup_context'):
        torch.vmap(loss)(scores[None])
    scores.requires_grad_()
    for power in (1, 2):
        (gradient,) = torch.autograd.grad(
            loss(scores) ** power, scores, create_graph=True
        )
        with pytest.raises(RuntimeError, match='no second derivative'):
            torch.autograd.grad(gradient.sum(), scores)


@pytest.mark.parametrize('form', [*FORMS, 'jaccard'])
def test_labels_that_are_no_class(form):
    scores, labels, rho_0k, rho_k0 = make(3, (1, 2, 2))
    for wrong in (3, -1, 2**32 + 1):
        labels[0, 0, 0] = wrong
        with pytest.raises(ValueError, match=f'Labels .{wrong}. lie outside'):
            eager(scores, labels, rho_0k, rho_k0, form=form)


@pytest.mark.parametrize('form', [*FORMS, 'jaccard'])
def test_no_image_and_infinite_scores(form):
    empty = torch.zeros(0, 3, 4, 4, requires_grad=True)
    loss = eager(empty, torch.zeros(0, 4, 4).long(), 0.1, 0.1, form=form)
    loss.backward()
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
        ({'log_base': 1}, 'log_base=1'),
        ({'focus': -1}, 'focus=-1'),
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
