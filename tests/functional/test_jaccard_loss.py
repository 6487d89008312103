"""The Jaccard objective against sorting, and against Lovasz-softmax."""

import math

import numpy as np
import pytest
import torch

from mmseg_margin.functional import (
    JaccardObjective,
    count_errors,
    jaccard_loss,
    jaccard_weights,
)
from mmseg_margin.functional.backend import Pixels
from mmseg_margin.functional.jaccard_loss import (
    ErrorWeights,
    counting_step,
)
from tests.functional.builders import (
    IGNORE,
    jaccard,
    make_batch,
    value_and_gradient,
)


def errors_of(scores, labels):
    """Errors (P, K) of labelled pixels, and the mask of their labels."""
    p = torch.softmax(scores, 1)
    is_label = torch.nn.functional.one_hot(labels, scores.shape[1]).bool()
    return torch.where(is_label, 1 - p, p), is_label


def sorted_weights(e, is_label, seen, seen_is_label, softness):
    """``w_ik`` from the rank of each error among those that were seen.

    A softness mixes the number of larger errors with the sum of all errors.
    """
    P, K = e.shape
    w = torch.zeros_like(e)
    fraction = seen_is_label.double().mean(0)
    shown = (fraction > 0).sum()
    for k in range(K):
        if not fraction[k]:
            continue
        is_class = seen_is_label[:, k]
        own, others = seen[is_class, k], seen[~is_class, k]
        for i in range(P):
            missed, taken = (
                (1 - softness) * (errors > e[i, k]).double().sum() / len(seen)
                + softness * errors.sum() / len(seen)
                for errors in (own, others)
            )
            union = fraction[k] + taken
            w[i, k] = 1 if is_label[i, k] else (fraction[k] - missed) / union
            w[i, k] /= shown * union
    return w


def run_kernel(how, scores, labels, tables, ce_weight):
    """Loss and gradient of pixels (P, K) with the weights of tables."""
    number = torch.arange(scores.shape[1]).unsqueeze(1)
    own, other = map(ErrorWeights.between, tables)
    ce_weight = torch.tensor(ce_weight, dtype=torch.float64)
    ones = torch.ones(1, len(labels), dtype=torch.float64)
    pixels = Pixels(scores.t(), labels.unsqueeze(0), ones)
    kernel = getattr(JaccardObjective, how)
    terms = kernel(pixels, (number, own, other, ce_weight), ())
    return terms.loss[0], terms.gradient.t()


def lovasz_softmax(p, labels, K):
    """Berman et al., Alg. 1, the mean over all classes."""
    losses = []
    for k in range(K):
        is_label = (labels == k).to(p.dtype)
        errors, order = (is_label - p[:, k]).abs().sort(descending=True)
        is_label = is_label[order]
        missed, taken = is_label.cumsum(0), (1 - is_label).cumsum(0)
        loss = 1 - (is_label.sum() - missed) / (is_label.sum() + taken)
        loss[1:] = loss[1:] - loss[:-1].clone()
        losses.append((errors * loss).sum())
    return sum(losses) / K


@pytest.mark.parametrize('how', ['eager', 'fusible'])
@pytest.mark.parametrize('absent', [False, True])
@pytest.mark.parametrize('softness', [0.0, 0.3])
@pytest.mark.parametrize('ce_weight', [0.0, 0.25])
def test_equals_the_weights_by_sorting(how, ce_weight, softness, absent):
    """With levels so fine that no two errors fall into the same one."""
    K, P = 4, 80
    scores, labels, *_ = make_batch(K, (P,), ignored=0)
    seen, seen_labels, *_ = make_batch(K, (P,), seed=1, ignored=0)
    if absent:
        seen_labels[seen_labels == 2] = 1
    counts = count_errors([(seen.t(), seen_labels)], seen, levels=2**19)
    tables = jaccard_weights(counts, torch.float64, softness)
    e, is_label = errors_of(scores, labels)
    w = sorted_weights(e, is_label, *errors_of(seen, seen_labels), softness)

    def slow(scores):
        e, _ = errors_of(scores, labels)
        log_loss = torch.where(is_label, -torch.log1p(-e), 0.0)
        return (w * e + ce_weight * log_loss).sum()

    loss, gradient = run_kernel(how, scores, labels, tables, ce_weight)
    expected = value_and_gradient(slow, scores)
    assert loss.sum() == pytest.approx(float(expected[0]), rel=1e-6)
    # A histogram knows each error, and so their sum, to the width of a level.
    atol = 1e-7 if softness else 1e-9
    torch.testing.assert_close(gradient, expected[1], rtol=1e-6, atol=atol)


@pytest.mark.parametrize('how', ['eager', 'fusible'])
def test_weights_are_linear_between_the_borders_of_levels(how):
    """So an error next to a border weighs the same on both sides of it."""
    K = 3
    scores, labels, *_ = make_batch(K, (64,), ignored=0)
    scores[0] = 1e3 * torch.nn.functional.one_hot(labels[0], K)
    scores[1] = -scores[0]
    tables = torch.rand(2, K, 9, dtype=torch.float64)
    e, is_label = errors_of(scores, labels)
    borders = np.linspace(0, 1, 9)
    expected = [
        sum(
            error * np.interp(error, borders, tables[1 - int(is_own), k])
            for k, (error, is_own) in enumerate(zip(errors, mask, strict=True))
        )
        for errors, mask in zip(e.numpy(), is_label.numpy(), strict=True)
    ]
    loss, _ = run_kernel(how, scores, labels, tables, 0.0)
    np.testing.assert_allclose(loss, expected, rtol=1e-9)


def test_with_fine_levels_it_is_lovasz_softmax():
    K = 3
    scores, labels, *_ = make_batch(K, (8_000,), ignored=0)
    _, gradient = value_and_gradient(
        jaccard, scores, labels, ce_weight=0, levels=4096
    )
    _, expected = value_and_gradient(
        lambda s: lovasz_softmax(s.softmax(1), labels, K), scores
    )
    gradients = gradient.flatten(), expected.flatten()
    assert torch.cosine_similarity(*gradients, dim=0) > 1 - 1e-6
    norm = pytest.approx(float(expected.norm()), rel=1e-4)
    assert gradient.norm() == norm


def soft_jaccard_loss(p, labels):
    """One minus the mean soft Jaccard index of the classes shown."""
    losses = []
    for k in labels.unique():
        is_label = (labels == k).to(p.dtype)
        intersection = (p[:, k] * is_label).sum()
        union = (p[:, k] + is_label).sum() - intersection
        losses.append(1 - intersection / union)
    return sum(losses) / len(losses)


def test_at_full_softness_it_has_the_gradient_of_the_soft_jaccard_index():
    scores, labels, *_ = make_batch(4, (500,), ignored=0)
    labels[labels == 2] = 1
    _, gradient = value_and_gradient(
        jaccard, scores, labels, ce_weight=0, levels=4096, softness=1.0
    )
    _, expected = value_and_gradient(
        lambda s: soft_jaccard_loss(s.softmax(1), labels), scores
    )
    torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize('softness', [0.0, 1.0])
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
    perfect = 1e4 * torch.nn.functional.one_hot(labels).double()
    assert jaccard(perfect, labels, ce_weight=ce_weight) == 0


@pytest.mark.parametrize('softness', [0.0, 1.0])
def test_weights_are_not_negative_and_bounded(softness):
    """Also of classes that are not in the batch."""
    histograms = torch.zeros(2, 3, 8, dtype=torch.int64)
    histograms[0, 0, 0], histograms[1, 1:, 7] = 10, 10
    weights = jaccard_weights(histograms, softness=softness)
    assert weights.isfinite().all()
    assert (weights >= 0).all()
    assert (weights[:, 1:] == 0).all()
    assert weights[0, 0, 0] == 1


@pytest.mark.parametrize('K', [3, 40])
def test_histograms_count_every_labelled_pixel_once(K):
    scores, labels, *_ = make_batch(K, (1, 2000))
    scores[0, :, 0] = math.nan
    known = torch.where(labels == IGNORE, -1, labels)
    counts = count_errors([(scores[0], known[0])], scores, levels=16)
    seen = labels[0, 1:][labels[0, 1:] != IGNORE]
    pixels = seen.bincount(minlength=K)
    assert torch.equal(counts.sum(2)[0], pixels)
    assert torch.equal(counts.sum(2)[1], len(seen) - pixels)
    e, is_label = errors_of(scores[0].t()[1:], labels[0, 1:].clamp(max=K - 1))
    place = e[is_label & (labels[0, 1:, None] != IGNORE)] * 16
    level = place.long().clamp(max=15).bincount(minlength=16)
    assert torch.equal(counts[0].sum(0), level)


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
    fine, coarse = (float(counts[0].sum()) for counts in seen)
    assert coarse / fine == pytest.approx(4, rel=0.02)


def test_bad_levels():
    with pytest.raises(ValueError, match=r'levels=2\.5 must be a whole numb'):
        jaccard_loss(torch.zeros(1, 2), torch.zeros(1).long(), levels=2.5)
