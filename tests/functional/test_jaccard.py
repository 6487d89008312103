"""The Jaccard objective against sorting, and against the soft index."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from mmseg_margin.functional import jaccard_loss, upsampled_jaccard_loss
from mmseg_margin.functional.jaccard import (
    ERROR_UNIT,
    LEVELS,
    count_errors,
    counting_step,
    error_level,
    jaccard_weights,
)
from mmseg_margin.functional.upsampling import make_source
from tests.functional.builders import (
    IGNORE,
    jaccard,
    make_batch,
    value_and_gradient,
)


def lovasz_losses(scores, labels):
    """Berman et al., Alg. 1: the loss that each pixel (P,) adds, in float64.

    Of the mean over the classes that occur; the weights are constants.
    """
    log_p = scores.double().log_softmax(1)
    shown = labels.unique()
    losses = torch.zeros(len(labels), dtype=torch.float64)
    for k in shown:
        is_label = (labels == k).double()
        p = log_p[:, k].exp()
        # Without cancellation, so that confident errors have an order.
        error = torch.where(is_label > 0, -torch.expm1(log_p[:, k]), p)
        order = error.argsort(descending=True)
        truth = is_label[order]
        missed, taken = truth.cumsum(0), (1 - truth).cumsum(0)
        jaccard = 1 - (truth.sum() - missed) / (truth.sum() + taken)
        weight = jaccard.diff(prepend=jaccard.new_zeros(1))
        losses = losses.index_add(0, order, error[order] * weight.detach())
    return losses / len(shown)


def soft_jaccard_loss(p, labels):
    """One minus the mean soft Jaccard index of the classes that occur."""
    losses = []
    for k in labels.unique():
        is_label = (labels == k).to(p.dtype)
        intersection = (p[:, k] * is_label).sum()
        union = (p[:, k] + is_label).sum() - intersection
        losses.append(1 - intersection / union)
    return sum(losses) / len(losses)


def rare_batch(K, P, small, confidence, lift=0.0, seed=0):
    """Scores (P, K) of a confidence, labels; the last class has few pixels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, K - 1, (P,), generator=generator)
    labels[:small] = K - 1
    scores = torch.randn(P, K, generator=generator)
    scores = scores + lift * F.one_hot(labels, K)
    return confidence * scores, labels


def agreement(found, expected):
    """Cosine of two gradients, and the ratio of their lengths."""
    found, expected = found.double().flatten(), expected.flatten()
    cosine = torch.cosine_similarity(found, expected, dim=0)
    return float(cosine), float(found.norm() / expected.norm())


def compare_with_sort(scores, labels, loss, reference=lovasz_losses):
    value, gradient = value_and_gradient(loss, scores, labels)
    exact, expected = value_and_gradient(
        lambda s: reference(s, labels).sum(), scores.double()
    )
    cosine, ratio = agreement(gradient, expected)
    assert float(value) == pytest.approx(float(exact), rel=0.01)
    assert 0 <= value <= 1
    assert cosine > 0.998
    assert ratio == pytest.approx(1, abs=0.01)


lovasz = partial(jaccard, ce_weight=0.0)


@pytest.mark.parametrize('confidence', [0.5, 1, 2, 4, 8, 15])
@pytest.mark.parametrize(
    ('K', 'P', 'small', 'lift'),
    [
        (2, 3_200, 400, 0.0),
        (5, 3_200, 9, 0.0),
        (5, 20_000, 40, 1.2),
        (19, 20_000, 1, 0.0),
        (19, 20_000, 9, 1.2),
        (171, 5_000, 1, 1.2),
    ],
)
def test_it_is_the_lovasz_extension(K, P, small, lift, confidence):
    scores, labels = rare_batch(K, P, small, confidence, lift)
    compare_with_sort(scores, labels, lovasz)


def test_confident_false_positives_of_a_rare_class():
    """An object of 800 pixels that is taken for a class with 9."""
    for confidence in (2, 8, 15):
        scores, labels = rare_batch(19, 20_000, 9, confidence, 1.2)
        scores[5_000:5_800, 18] += 3 * confidence
        compare_with_sort(scores, labels, lovasz)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    scores, labels = rare_batch(5, 20_000, 9, 4.0)
    compare_with_sort(scores.to(dtype), labels, lovasz)


def test_weights_of_pixels_and_ignored_pixels():
    """Weights multiply what a pixel adds, and leave the IoU as it is."""
    scores, labels = rare_batch(5, 20_000, 50, 4.0)
    ignored = torch.arange(len(labels)) % 7 == 3
    weight = torch.rand(len(labels), dtype=torch.float64) * ~ignored
    known = ~ignored

    def ours(scores, labels):
        labels = labels.masked_fill(ignored, IGNORE)
        losses = lovasz(scores, labels, reduction='none')
        return (weight * losses).sum() / known.sum()

    def reference(scores, labels):
        return weight[known] * lovasz_losses(scores[known], labels[known])

    compare_with_sort(scores, labels, ours, reference)


@pytest.mark.parametrize('confidence', [0.5, 2, 8])
@pytest.mark.parametrize(('K', 'small'), [(4, 40), (5, 1), (171, 3)])
def test_at_full_softness_it_is_the_soft_jaccard_index(K, small, confidence):
    """In the gradient; the value is that of a linear function."""
    scores, labels = rare_batch(K, 3_000, small, confidence)
    labels[labels == 2] = 1
    value, gradient = value_and_gradient(lovasz, scores, labels, softness=1.0)
    _, expected = value_and_gradient(
        lambda s: soft_jaccard_loss(s.softmax(1), labels), scores.double()
    )
    assert 0 <= value <= 1
    error = (gradient - expected).norm() / expected.norm()
    assert error < 1e-4


def test_softness_moves_the_numbers_of_larger_errors_to_their_means():
    scores, labels = rare_batch(4, 4_000, 200, 2.0)
    h, P = 0.3, len(labels)
    p = scores.double().softmax(1)
    w = torch.zeros_like(p)
    for k in range(4):
        own = labels == k
        e = torch.where(own, 1 - p[:, k], p[:, k])
        missed, taken = (
            (1 - h) * (len(x) - torch.searchsorted(x, e, right=True))
            + h * x.sum()
            for x in (e[own].sort()[0], e[~own].sort()[0])
        )
        union = own.sum() + taken
        intersection = own.sum() - missed
        w[:, k] = torch.where(own, 1 / union, intersection / union**2) / 4

    def slow(scores):
        p = scores.softmax(1)
        is_label = F.one_hot(labels, 4).bool()
        return (w * torch.where(is_label, 1 - p, p)).sum()

    value, gradient = value_and_gradient(lovasz, scores, labels, softness=h)
    exact, expected = value_and_gradient(slow, scores.double())
    assert float(value) == pytest.approx(float(exact), rel=1e-3)
    cosine, ratio = agreement(gradient, expected)
    assert cosine > 0.9995
    assert ratio == pytest.approx(1, abs=1e-3)
    assert P * w.max() > 1  # the weights differ


@pytest.mark.parametrize('how', ['eager', 'compiled'])
def test_the_cross_entropy_is_added(how):
    scores, labels, *_ = make_batch(5, (2, 300), dtype=torch.float32)
    without, with_ce = (
        value_and_gradient(
            jaccard_loss, scores, labels, ce_weight=w, backend=how
        )
        for w in (0.0, 0.25)
    )
    ce = value_and_gradient(
        F.cross_entropy, scores, labels, ignore_index=IGNORE
    )
    for a, b, c in zip(with_ce, without, ce, strict=True):
        torch.testing.assert_close(a, b + 0.25 * c)


@pytest.mark.parametrize('softness', [0.0, 0.5, 1.0])
@pytest.mark.parametrize('ce_weight', [0.0, 0.25])
def test_properties(ce_weight, softness):
    K, P = 4, 300
    scores, labels, *_ = make_batch(K, (P,))
    arguments = dict(ce_weight=ce_weight, reduction='none', softness=softness)
    loss = jaccard(scores, labels, **arguments)
    assert (loss >= 0).all()
    assert (loss[labels == IGNORE] == 0).all()
    pixels, classes = torch.randperm(P), torch.randperm(K)
    renamed = torch.where(
        labels == IGNORE, IGNORE, classes.argsort()[labels.clamp(max=K - 1)]
    )
    permuted = jaccard(
        scores[pixels][:, classes], renamed[pixels], **arguments
    )
    torch.testing.assert_close(permuted, loss[pixels])
    labels = torch.tensor([0, 1, 2, 1])
    perfect = 1e4 * F.one_hot(labels).double()
    assert jaccard(perfect, labels, ce_weight=ce_weight) == 0


def test_a_batch_that_is_all_wrong_costs_one():
    labels = torch.tensor([0, 1, 2, 1])
    for softness in (0.0, 0.5, 1.0):
        worst = 1e4 * F.one_hot((labels + 1) % 3).double()
        loss = lovasz(worst, labels, softness=softness)
        assert 0 <= loss <= 1
        assert softness or loss == pytest.approx(1)


def test_levels_are_16_per_octave_of_the_odds():
    exponents = torch.arange(-16, 16, 1 / 64, dtype=torch.float64)
    octave = exponents.floor()
    within = (16 * (2 ** (exponents - octave) - 1) + 1e-9).floor()
    expected = 16 * (octave + 16) + within
    assert torch.equal(error_level(2**exponents).double(), expected)
    odds = [-1e-9, 0, 2.0**-20, 2.0**20, math.inf, math.nan]
    found = error_level(torch.tensor(odds)).tolist()
    assert found == [0, 0, 0, *[LEVELS - 1] * 3]


def batch_counts(scores, labels):
    """The counts of a batch (N, K, H, W)."""
    known = torch.where(labels == IGNORE, -1, labels).int()
    source = make_source(scores, known, torch.ones(()), None)
    return count_errors(source, scores)


@pytest.mark.parametrize('K', [3, 40])
def test_counts_are_of_every_labelled_pixel(K):
    scores, labels, *_ = make_batch(K, (1, 1, 2000))
    scores[0, :, 0, 0] = math.nan
    counts = batch_counts(scores, labels)
    levels, errors, pixels = counts.split((LEVELS, 1, 1), 2)
    y = labels[0, 0, 1:]
    seen = y[y != IGNORE]
    assert torch.equal(pixels[0].flatten(), seen.bincount(minlength=K))
    assert torch.equal(levels[0].sum(1), pixels[0].flatten())
    assert torch.equal(levels[1].sum(1), len(seen) - levels[0].sum(1))
    p = scores[0, :, 0, 1:].softmax(0)[:, y != IGNORE]
    is_label = seen == torch.arange(K).unsqueeze(1)
    own = (is_label * (1 - p)).sum(1)
    others = (~is_label * p).sum(1)
    expected = torch.stack([own, others])
    assert torch.allclose(errors[..., 0].double() * ERROR_UNIT, expected)


def test_weights_of_absent_classes_are_zero():
    scores, labels, *_ = make_batch(4, (1, 1, 500), ignored=0)
    labels[labels == 2] = 1
    weights = jaccard_weights(batch_counts(scores, labels))
    assert weights.isfinite().all()
    assert (weights >= 0).all()
    assert (weights[:, 2] == 0).all()
    nothing = torch.full_like(labels, IGNORE)
    assert (jaccard_weights(batch_counts(scores, nothing)) == 0).all()


@pytest.mark.parametrize(
    ('size', 'step'),
    [((9,), 1), ((255, 255), 1), ((363, 363), 2), ((1024, 1024), 4)],
)
def test_the_step_follows_from_the_size_of_an_image(size, step):
    assert counting_step(size) == step


def test_counts_do_not_depend_on_the_step():
    """A pixel of a coarsely counted image has the weight of any other."""
    seen = []
    for side in (300, 600):
        scores, labels, *_ = make_batch(3, (1, side, side))
        jaccard(scores, labels, reduce=seen.append)
    fine, coarse = (counts[..., :LEVELS].sum() for counts in seen)
    assert coarse / fine == pytest.approx(4, rel=0.02)


@pytest.mark.parametrize('side', [1, 2, 3, 5, 8])
@pytest.mark.parametrize('taken', [0, 30])
def test_a_blob_of_few_pixels_has_its_pull(side, taken):
    """512 x 1024 pixels, of which every 16th is on the grid.

    The blob is missed, with and without an object that is taken for it.
    """
    generator = torch.Generator().manual_seed(side)
    low = 0.5 * torch.randn(1, 3, 128, 256, generator=generator)
    low[:, 0, :, :128] += 4
    low[:, 1, :, 128:] += 4
    low[:, 2, :taken, 200:230] += 12
    scores = F.interpolate(low, scale_factor=4, mode='bilinear')
    labels = torch.zeros(1, 512, 1024, dtype=torch.long)
    labels[:, :, 512:] = 1
    pulls = []
    for shift in range(16):
        y, x = 200 + 13 * shift + shift // 4, 100 + 9 * shift
        blob = (slice(y, y + side), slice(x, x + side))
        with_blob = labels.clone()
        with_blob[0][blob] = 2
        leaf = scores.clone().requires_grad_()
        lovasz(leaf, with_blob).backward()
        pull = leaf.grad[0, 2][blob].sum()
        p = scores[0].double().softmax(0)
        others = p[2][with_blob[0] != 2].sort()[0]
        own = p[2][blob]
        above = len(others) - torch.searchsorted(others, 1 - own)
        exact = (own * (1 - own) / (side**2 + above)).sum() / 3
        pulls.append(float(-pull / exact))
    assert 0.85 < sum(pulls) / len(pulls) < 1.15


@pytest.mark.parametrize('scale', [3, 4])
def test_up_sampled_few_pixels_are_counted_too(scale):
    """At a whole scale by phases, at another one from the whole image."""
    low, labels, *_ = make_batch(3, (1, 384, 512), (96, 128), torch.float32)
    low = low[..., : 384 // scale, : 512 // scale] if scale == 4 else low
    labels[labels == 2] = 1
    labels[0, 101:103, 202:204] = 2
    whole = F.interpolate(low, size=(384, 512), mode='bilinear')
    found = upsampled_jaccard_loss(low, labels, backend='eager')
    expected = jaccard(whole, labels)
    assert float(found) == pytest.approx(float(expected), rel=1e-4)
