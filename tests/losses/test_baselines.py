"""Cross-entropy, focal and region losses against loops over pixels."""

import math

import pytest
import torch
from mmseg.models.losses import CrossEntropyLoss
from torch import distributed

from mmseg_margin.losses import RegionLoss, WeightedCrossEntropyLoss
from mmseg_margin.losses.objectives import OBJECTIVES, build_loss
from tests.functional.builders import value_and_gradient
from tests.losses.builders import GAMMA, WEIGHTS, build
from tests.processes import run_ranks

close = torch.testing.assert_close


@pytest.mark.parametrize('name', ['ce', 'focal'])
def test_mean_over_the_weights_of_labelled_pixels(name, batch):
    scores, labels = batch
    total = divisor = 0.0
    for n, y, x in (labels != 255).nonzero().tolist():
        k = int(labels[n, y, x])
        p = float(scores[n, :, y, x].double().softmax(0)[k])
        factor = (1 - p) ** GAMMA if name == 'focal' else 1.0
        total -= WEIGHTS[k] * factor * math.log(p)
        divisor += WEIGHTS[k]
    loss = build(name, class_weight=WEIGHTS)(scores, labels)
    assert float(loss) == pytest.approx(total / divisor, rel=1e-5)


@pytest.mark.parametrize('ignore_index', [255, -100, 1])
def test_it_is_mmsegs_loss_where_that_works(batch, ignore_index):
    scores, labels = batch
    labels = labels.clamp(max=2)
    labels[labels == ignore_index] = 0  # theirs may fail on ignored pixels
    theirs = CrossEntropyLoss(class_weight=WEIGHTS)
    ours = WeightedCrossEntropyLoss(WEIGHTS)
    expected = theirs(scores, labels, ignore_index=ignore_index)
    actual = ours(scores, labels, ignore_index=ignore_index)
    torch.testing.assert_close(actual, expected)


def slow_loss(scores, labels, alpha, beta, smooth):
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
    losses = []
    for k in set(labels[labels != 255].tolist()):
        union = hit[k] + alpha * taken[k] + beta * missed[k]
        losses.append(1 - (hit[k] + smooth) / (union + smooth))
    return sum(losses) / len(losses)


@pytest.mark.parametrize('smooth', [0.0, 1.0])
@pytest.mark.parametrize(
    ('name', 'ratio'),
    [('jml', (1, 1)), ('dice', (0.5, 0.5)), ('tversky', (0.3, 0.7))],
)
def test_regions_are_the_overlap_of_the_classes_that_occur(
    batch, name, ratio, smooth
):
    cases = 2 * batch[0].double(), batch[1].masked_fill(batch[1] == 1, 2)
    loss = build_loss(OBJECTIVES[name] | {'smooth': smooth})
    expected = value_and_gradient(slow_loss, *cases, *ratio, smooth)
    actual = value_and_gradient(loss, *cases)
    close(actual, expected, rtol=1e-5, atol=1e-6, check_dtype=False)


def test_without_labels_and_in_half_precision(batch):
    scores, labels = batch
    zero = value_and_gradient(RegionLoss(), scores, labels * 0 + 255)
    assert not zero[0]
    assert not zero[1].any()
    value, gradient = value_and_gradient(RegionLoss(), *batch)
    half = value_and_gradient(RegionLoss(), scores.bfloat16(), labels)
    assert (half[0].dtype, half[1].dtype) == (torch.float32, torch.bfloat16)
    close(half[0], value, rtol=1e-2, atol=0)
    close(half[1].float(), gradient, rtol=2e-2, atol=1e-4)


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
        ({'loss_name': 'jml'}, {}, 'loss_name'),
        ({}, {'weight': torch.ones(2, 6, 8)}, 'sampler'),
        ({}, {'reduction_override': 'none'}, 'sampler'),
        ({}, {'ignore_index': 7}, '255'),
    ],
)
def test_mistakes_are_named(batch, settings, call, word):
    with pytest.raises(ValueError, match=word):
        RegionLoss(**settings)(*batch, **call)
