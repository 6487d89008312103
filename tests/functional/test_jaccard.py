"""The Jaccard form against sorting, and against Lovasz-softmax."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from mmseg_margin.functional import error_histograms, jaccard_weights
from tests.functional.builders import (
    IGNORE,
    eager,
    make_batch,
    value_and_gradient,
)

jaccard = partial(eager, form='jaccard', log_base='e')


def errors_of(scores, labels, rho_0k, rho_k0):
    """Probabilities and errors (P, K) of the labelled pixels, by loops."""
    shifted = scores + rho_0k
    for i, y in enumerate(labels.tolist()):
        shifted[i, y] = scores[i, y] - rho_k0[y]
    p = torch.softmax(shifted, 1)
    own = torch.nn.functional.one_hot(labels, scores.shape[1]).bool()
    return torch.where(own, 1 - p, p), own


def sorted_weights(e, own, share, seen, seen_own):
    """``w_ik`` from the rank of each error among those that were seen."""
    P, K = e.shape
    w = torch.zeros_like(e)
    for k in range(K):
        mine, others = seen[seen_own[:, k], k], seen[~seen_own[:, k], k]
        for i in range(P):
            F, B = ((x > e[i, k]).double().mean() for x in (mine, others))
            F, B = share[k] * F, (1 - share[k]) * B
            w[i, k] = 1 if own[i, k] else (share[k] - F) / (share[k] + B)
            w[i, k] /= share[k] + B
    return w / K


def lovasz_softmax(p, labels, K):
    """Berman et al., Alg. 1, the mean over all classes."""
    losses = []
    for k in range(K):
        own = (labels == k).to(p.dtype)
        errors, order = (own - p[:, k]).abs().sort(descending=True)
        own = own[order]
        missed, taken = own.cumsum(0), (1 - own).cumsum(0)
        loss = 1 - (own.sum() - missed) / (own.sum() + taken)
        loss[1:] = loss[1:] - loss[:-1].clone()
        losses.append((errors * loss).sum())
    return sum(losses) / K


@pytest.mark.parametrize('log_share', [0.0, 0.25])
def test_equals_the_weights_by_sorting(log_share):
    """Levels so fine that no error shares one with those seen before."""
    K, P, levels = 4, 80, 2**22
    share = torch.tensor([0.6, 0.3, 0.09, 0.01], dtype=torch.float64)
    batch = make_batch(K, (P,), ignored=0)
    before = *make_batch(K, (P,), seed=1, ignored=0)[:2], *batch[2:]
    tables = jaccard_weights(share, error_histograms(*before, levels=levels))
    e, own = errors_of(*batch)
    w = sorted_weights(e, own, share, *errors_of(*before))

    def slow(*batch):
        e, _ = errors_of(*batch)
        log_loss = torch.where(own, -torch.log1p(-e), 0.0)
        return (w * e + log_share * log_loss).sum(1).mean()

    loss, gradient = value_and_gradient(
        jaccard, *batch, tables=tables, log_share=log_share
    )
    expected = value_and_gradient(slow, *batch)
    assert loss == pytest.approx(float(expected[0]), rel=1e-6)
    torch.testing.assert_close(gradient, expected[1], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize('backend', ['eager', 'compiled'])
def test_weights_are_straight_between_the_borders_of_levels(backend):
    """So an error next to a border weighs the same on both sides of it."""
    K = 3
    scores, labels, *_ = batch = make_batch(K, (64,), ignored=0)
    scores[0] = 1e3 * torch.nn.functional.one_hot(labels[0], K)
    scores[1] = -scores[0]
    tables = torch.rand(2, K, 9, dtype=torch.float64)
    e, own = errors_of(*batch)
    borders = np.linspace(0, 1, 9)
    expected = [
        sum(
            error * np.interp(error, borders, tables[1 - int(mine), k])
            for k, (error, mine) in enumerate(zip(errors, mask, strict=True))
        )
        for errors, mask in zip(e.numpy(), own.numpy(), strict=True)
    ]
    settings = dict(tables=tables, reduction='none', backend=backend)
    loss = jaccard(*batch, **settings)
    np.testing.assert_allclose(loss, expected, rtol=1e-9)


def test_without_memory_it_is_lovasz_softmax():
    K = 3
    scores, labels, *_ = make_batch(K, (8_000,), ignored=0)
    zero = torch.zeros(K)
    _, gradient = value_and_gradient(
        jaccard, scores, labels, zero, zero, levels=4096
    )
    _, expected = value_and_gradient(
        lambda s: lovasz_softmax(s.softmax(1), labels, K), scores
    )
    gradients = gradient.flatten(), expected.flatten()
    assert torch.cosine_similarity(*gradients, dim=0) > 1 - 1e-6
    norm = pytest.approx(float(expected.norm()), rel=1e-4)
    assert gradient.norm() == norm


@pytest.mark.parametrize('log_share', [0.0, 0.25])
def test_properties(log_share):
    K, P = 4, 300
    scores, labels, rho_0k, rho_k0 = batch = make_batch(K, (P,))
    arguments = dict(log_share=log_share, reduction='none')
    loss = jaccard(*batch, **arguments)
    assert (loss >= 0).all()
    assert (loss[labels == IGNORE] == 0).all()
    pixels, classes = torch.randperm(P), torch.randperm(K)
    renamed = torch.where(
        labels == IGNORE, IGNORE, classes.argsort()[labels.clamp(max=K - 1)]
    )
    permuted = jaccard(
        scores[pixels][:, classes],
        renamed[pixels],
        rho_0k[classes],
        rho_k0[classes],
        **arguments,
    )
    torch.testing.assert_close(permuted, loss[pixels])


def test_a_perfect_prediction_costs_nothing():
    labels = torch.tensor([0, 1, 2, 1])
    scores = 1e4 * torch.nn.functional.one_hot(labels).double()
    assert jaccard(scores, labels, 0.3, 0.1) == 0


def test_weights_are_not_negative_and_bounded():
    """Also of classes that were never seen, or are not in the data set."""
    share = torch.tensor([0.9, 0.1 - 1e-6, 1e-6, 0.0])
    costs = jaccard_weights(share, torch.zeros(2, 4, 8))
    assert costs.isfinite().all()
    assert (costs >= 0).all()
    assert (costs[:, 3] == 0).all()
    torch.testing.assert_close(costs[0, :3, 0], 1 / (4 * share[:3]))


def test_histograms_count_every_labelled_pixel_once():
    K = 3
    scores, labels, *_ = batch = make_batch(K, (200,))
    scores[0] = math.nan
    counts = error_histograms(*batch, levels=16)
    seen = labels[1:][labels[1:] != IGNORE]
    own = seen.bincount(minlength=K).double()
    torch.testing.assert_close(counts.sum(2)[0], own)
    torch.testing.assert_close(counts.sum(2)[1], len(seen) - own)


@pytest.mark.parametrize(
    ('side', 'step'), [(16, 1), (255, 1), (363, 2), (1024, 4)]
)
def test_a_function_makes_the_tables_of_a_batch(side, step):
    scores, labels, *rho = make_batch(3, (1, side, side))
    share = torch.tensor([0.5, 0.3, 0.2])
    seen = []

    def remember(histograms):
        seen.append(histograms)
        return jaccard_weights(share, histograms)

    loss = jaccard(scores, labels, *rho, tables=remember, levels=8)
    some = scores[..., ::step, ::step], labels[..., ::step, ::step]
    expected = error_histograms(*some, *rho, levels=8)
    torch.testing.assert_close(seen, [expected])
    tables = jaccard_weights(share, expected)
    again = jaccard(scores, labels, *rho, tables=tables)
    torch.testing.assert_close(loss, again)


def test_gradcheck_with_constant_weights():
    """Weights are held constant: so take some that do not change."""
    scores, *others = make_batch(3, (12,))
    tables = torch.rand(2, 3, 1).expand(2, 3, 5)
    settings = dict(tables=tables, log_share=0.5, focus=1.0, reduction='none')
    assert torch.autograd.gradcheck(
        lambda s: jaccard(s, *others, **settings), scores.requires_grad_()
    )
