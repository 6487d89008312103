"""form='jaccard' in the Module: running errors and their survival."""

import math
from functools import partial

import pytest
import torch
from mmseg.models.losses import LovaszLoss
from torch import distributed

from mmseg_margin.losses.error_memory import ErrorMemory
from tests.losses.builders import margin
from tests.processes import run_ranks

K, COUNTS = 4, [70, 20, 7, 3]


jaccard = partial(margin, form='jaccard', log_base='e', class_counts=COUNTS)


def slow_loss(scores, labels, history, loss):
    """By counting, pixel by pixel, in whatever was seen before."""
    rho_0k, rho_k0, settings = loss.rho_0k, loss.rho_k0, loss.settings
    levels, of_batch = settings.levels, settings.batch_share
    labelled = labels[labels != 255]
    share = [
        (count / sum(COUNTS)) ** (1 - of_batch)
        * float((labelled == k).double().mean()) ** of_batch
        for k, count in enumerate(COUNTS)
    ]
    shown = sum(p > 0 for p in share) if of_batch else K

    def errors_of(scores, labels):
        for s, y in zip(scores.tolist(), labels.tolist(), strict=True):
            if y == 255:
                continue
            shift = [-rho_k0[k] if k == y else rho_0k[k] for k in range(K)]
            p = torch.tensor(
                [a + float(b) for a, b in zip(s, shift, strict=True)],
                dtype=torch.float64,
            ).softmax(0)
            yield y, [1 - p[k] if k == y else p[k] for k in range(K)]

    seen = [pair for batch in history for pair in errors_of(*batch)]

    def above(border, k, own):
        values = [e[k] for y, e in seen if (y == k) == own]
        levels_of = [min(int(e * levels), levels - 1) for e in values]
        return sum(level >= border for level in levels_of) / len(levels_of)

    def weight(border, k, own):
        union = share[k] + (1 - share[k]) * above(border, k, False)
        missed = share[k] * above(border, k, True)
        return (1 if own else (share[k] - missed) / union) / (shown * union)

    total, pixels = 0.0, 0
    for y, error in errors_of(scores, labels):
        pixels += 1
        for k in range(K):
            level = int(error[k] * levels)
            rest = error[k] * levels - level
            low, high = (weight(level + i, k, k == y) for i in (0, 1))
            total += (low + rest * (high - low)) * error[k]
        total -= settings.log_share * math.log(1 - error[y])
    return float(total / pixels)


def batches(number, pixels=60):
    torch.manual_seed(0)
    for _ in range(number):
        labels = torch.randint(0, K, (pixels,))
        labels[:5] = 255
        yield torch.randn(pixels, K), labels


@pytest.mark.parametrize('batch_share', [0.0, 0.5, 1.0])
@pytest.mark.parametrize('log_share', [0.0, 0.25])
def test_the_weights_are_those_of_all_that_was_seen(batch_share, log_share):
    shares = dict(batch_share=batch_share, log_share=log_share)
    loss = jaccard(levels=8, memory=1 - 1e-9, tau=0.01, **shares)
    loss.errors.histograms.zero_()  # all classes are in the first batch
    history = []
    for scores, labels in batches(3):
        history.append((scores, labels))
        expected = slow_loss(scores, labels, history, loss)
        actual = float(loss(scores, labels))
        assert actual == pytest.approx(expected, rel=1e-5)


def test_without_memory_the_batch_counts_and_nothing_else():
    loss = jaccard(memory=0, tau=0.01, levels=8)
    first, second = batches(2)
    loss(*first)
    loss(*second)
    expected = slow_loss(*second, [second], loss)
    assert float(loss(*second)) == pytest.approx(expected, rel=1e-5)


def test_a_class_that_is_not_in_the_batch_waits_for_one_that_has_it():
    """If the shares are the batch's, as in Lovasz-softmax."""
    loss = jaccard(batch_share=1.0)
    scores = torch.randn(6, K, requires_grad=True)
    batch = torch.zeros(2, K, 64)
    batch[0, :2] = batch[1] = 1
    weights = loss.errors.weights_with(batch)
    assert (weights[:, 2:] == 0).all()
    loss(scores, torch.tensor([0, 0, 1, 1, 0, 1])).backward()
    assert scores.grad.isfinite().all()


def test_a_batch_of_its_own_shares_is_lovasz_softmax():
    """The mean is over the classes that the batch shows, as in mmseg."""
    loss = jaccard(memory=0, batch_share=1.0, levels=2**16, tau=0)
    lovasz = LovaszLoss(reduction='none')
    scores = torch.randn(2, K, 64, 64)
    labels = torch.randint(1, K, (2, 64, 64))
    gradients = []
    for function in (loss, lovasz):
        s = scores.clone().requires_grad_()
        function(s, labels).backward()
        gradients.append(s.grad)
    ours, theirs = gradients
    assert (ours - theirs).norm() < 1e-3 * theirs.norm()


def test_an_unseen_class_keeps_its_errors():
    memory = ErrorMemory(levels=4, memory=0.5)
    memory.start(COUNTS)
    before = memory.histograms[0, 3].clone()
    batch = torch.ones(2, K, 4)
    batch[0, 3] = 0
    for _ in range(500):
        memory.weights_with(batch)
    assert torch.equal(memory.histograms[0, 3], before)
    assert memory.weights().isfinite().all()
    assert (memory.weights() >= 0).all()


def test_a_step_that_overflows_is_not_remembered():
    loss = jaccard()
    for scores, labels in batches(2):
        loss(scores, labels)
    before = loss.training_state()
    loss(torch.full((4, K), float('nan')), torch.arange(4))
    assert loss.training_state() == before


def test_the_memory_survives_a_resume_and_rests_while_evaluating():
    loss, resumed = jaccard(), jaccard()
    first, second, third = batches(3)
    loss(*first)
    loss(*second)
    resumed.load_training_state(loss.training_state())
    assert resumed(*third) == loss(*third)
    assert resumed.training_state() == loss.training_state()
    loss.eval()
    assert loss(*third) == loss(*third)


def histograms():
    rank, size = distributed.get_rank(), distributed.get_world_size()
    loss = jaccard()
    for scores, labels in batches(3):
        loss(scores[rank::size], labels[rank::size])
    return loss.errors.histograms


def test_ranks_agree_with_one_process(tmp_path):
    one = run_ranks(1, histograms, tmp_path / 'one')[0]
    first, second = run_ranks(2, histograms, tmp_path / 'two')
    assert torch.equal(first, second)
    torch.testing.assert_close(first, one)
