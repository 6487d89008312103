"""RegionLoss against sums over single pixels, class by class."""

import pytest
import torch
from torch import distributed

from mmseg_margin.losses import RegionLoss
from mmseg_margin.losses.objectives import OBJECTIVES, build_loss
from tests.functional.builders import value_and_gradient
from tests.losses.builders import STATS, WEIGHTS
from tests.processes import run_ranks

close = torch.testing.assert_close


def slow_loss(scores, labels, alpha, beta, smooth, weights=None):
    """TP / (TP + alpha FP + beta FN), from one pixel after another."""
    K = scores.shape[1]
    hit, missed, taken = ([0.0] * K for _ in range(3))
    for n, y, x in (labels != 255).nonzero().tolist():
        p = scores[n, :, y, x].softmax(0)
        for k in range(K):
            if labels[n, y, x] == k:
                hit[k] = hit[k] + p[k]
                missed[k] = missed[k] + 1 - p[k]
            else:
                taken[k] = taken[k] + p[k]
    total = weight = 0.0
    for k in set(labels[labels != 255].tolist()):
        w = 1.0 if weights is None else weights[k]
        union = hit[k] + alpha * taken[k] + beta * missed[k]
        total += w * (1 - (hit[k] + smooth) / (union + smooth))
        weight += w
    return total / weight


def slow_jml(scores, labels, smooth):
    """As published: L1 norms of probabilities x and hard labels y."""
    labelled = labels != 255
    x = scores.softmax(1).movedim(1, -1)[labelled]
    losses = []
    for k in labels[labelled].unique().tolist():
        y = (labels[labelled] == k).to(x)
        norms, distance = x[:, k].sum() + y.sum(), (x[:, k] - y).abs().sum()
        index = (norms - distance + 2 * smooth) / (
            norms + distance + 2 * smooth
        )
        losses.append(1 - index)
    return sum(losses) / len(losses)


@pytest.fixture(params=[False, True], ids=['every class', 'an absent class'])
def cases(request, batch):
    """Scores in double precision, and labels with ignored pixels."""
    scores, labels = batch
    if request.param:
        labels[labels == 1] = 2
    return 2 * scores.double(), labels


@pytest.mark.parametrize('smooth', [0.0, 1.0])
@pytest.mark.parametrize('weights', [None, WEIGHTS])
@pytest.mark.parametrize('name', ['jml', 'dice', 'tversky'])
def test_it_is_the_overlap_of_the_classes_that_occur(
    cases, name, weights, smooth
):
    settings = {'smooth': smooth, 'class_weight': weights}
    loss = build_loss(OBJECTIVES[name] | settings)
    ratio = {'jml': (1, 1), 'dice': (0.5, 0.5), 'tversky': (0.3, 0.7)}[name]
    expected = value_and_gradient(slow_loss, *cases, *ratio, smooth, weights)
    actual = value_and_gradient(loss, *cases)
    close(actual, expected, rtol=1e-5, atol=1e-6, check_dtype=False)
    if name == 'jml' and weights is None:
        published = value_and_gradient(slow_jml, *cases, smooth)
        close(actual, published, rtol=1e-5, atol=1e-6, check_dtype=False)


@pytest.mark.parametrize('smooth', [0.0, 1.0])
def test_a_batch_without_labels_is_a_connected_zero(batch, smooth):
    labels = batch[1].fill_(255)
    value, gradient = value_and_gradient(
        RegionLoss(smooth=smooth), batch[0], labels
    )
    assert value == 0
    assert not gradient.any()


def test_half_precision_and_binary_heads(batch):
    scores, labels = batch[0].bfloat16(), batch[1]
    full = value_and_gradient(RegionLoss(), scores.float(), labels)
    half = value_and_gradient(RegionLoss(), scores, labels)
    assert (half[0].dtype, half[1].dtype) == (torch.float32, torch.bfloat16)
    close(half[0], full[0])
    close(half[1].float(), full[1], rtol=1e-2, atol=1e-5)
    one, labels = scores[:, :1].float(), (labels == 1).long()
    both = torch.cat([torch.zeros_like(one), one], 1)
    assert RegionLoss()(one, labels) == RegionLoss()(both, labels)


def test_weights_from_statistics(batch):
    loss = RegionLoss(class_weight='median')
    with pytest.raises(RuntimeError, match='ClassStatsHook'):
        loss(*batch)
    loss.set_class_stats(STATS)
    given = RegionLoss(class_weight=STATS.class_weights('median'))
    assert loss(*batch) == given(*batch)
    assert loss(*batch) != RegionLoss()(*batch)


def of_rank(scores, labels):
    """The loss of a rank's images, and its part of the gradient."""
    rank, size = distributed.get_rank(), distributed.get_world_size()
    part = slice(rank, None, size)
    loss, gradient = value_and_gradient(
        RegionLoss(), scores[part], labels[part]
    )
    evaluated = RegionLoss().eval()(scores[part], labels[part])
    return loss, gradient / size, evaluated


def test_two_ranks_have_the_loss_of_their_images_together(batch, tmp_path):
    ((value, gradient, _),) = run_ranks(1, of_rank, tmp_path / '1', *batch)
    ranks = run_ranks(2, of_rank, tmp_path / '2', *batch)
    for rank, (loss, part, evaluated) in enumerate(ranks):
        close(loss, value)
        close(part, gradient[rank : rank + 1])
        assert evaluated != value


@pytest.mark.parametrize(
    ('settings', 'call', 'word'),
    [
        ({'smooth': -1}, {}, 'smooth'),
        ({'alpha': 0}, {}, 'alpha'),
        ({'beta': 'x'}, {}, 'beta'),
        ({'loss_name': 'jml'}, {}, 'loss_name'),
        ({'class_weight': [1.0, 2.0]}, {}, '3 classes'),
        ({}, {'weight': torch.ones(2, 6, 8)}, 'sampler'),
        ({}, {'reduction_override': 'none'}, 'sampler'),
        ({}, {'ignore_index': 7}, '255'),
    ],
)
def test_mistakes_are_named(batch, settings, call, word):
    with pytest.raises(ValueError, match=word):
        RegionLoss(**settings)(*batch, **call)
