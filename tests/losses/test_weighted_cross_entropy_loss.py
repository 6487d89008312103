"""WeightedCrossEntropyLoss against a loop over pixels."""

import copy
import math
import pickle

import pytest
import torch
from mmseg.models.losses import CrossEntropyLoss

from mmseg_margin.losses import WeightedCrossEntropyLoss
from mmseg_margin.stats import ClassStats

WEIGHTS = [0.5, 2.0, 4.0]
STATS = ClassStats(list('abc'), [70, 20, 10], [4, 2, 1], [100, 60, 30])


@pytest.fixture
def batch():
    """Scores (2, 3, 4, 5), and labels of which some are ignored."""
    generator = torch.Generator().manual_seed(0)
    score = torch.randn(2, 3, 4, 5, generator=generator)
    label = torch.randint(0, 3, (2, 4, 5), generator=generator)
    label[0, :2] = 255
    return score.requires_grad_(), label


def slow_losses(score, label, weights):
    """(pixel loss times class weight, class weight) of labelled pixels."""
    for n, row, column in (label != 255).nonzero().tolist():
        scores = score[n, :, row, column].tolist()
        true = int(label[n, row, column])
        total = sum(math.exp(s) for s in scores)
        weight = weights[true]
        yield weight * (math.log(total) - scores[true]), weight


def test_mean_over_the_weights_of_labelled_pixels(batch):
    pairs = list(slow_losses(*batch, WEIGHTS))
    expected = sum(loss for loss, _ in pairs) / sum(w for _, w in pairs)
    loss = WeightedCrossEntropyLoss(WEIGHTS, loss_weight=0.4)(*batch)
    assert loss.item() == pytest.approx(0.4 * expected, rel=1e-5)


def test_without_weights_every_labelled_pixel_counts_alike(batch):
    pairs = list(slow_losses(*batch, [1.0] * 3))
    expected = sum(loss for loss, _ in pairs) / len(pairs)
    loss = WeightedCrossEntropyLoss()(*batch)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_reductions(batch):
    score, label = batch
    loss = WeightedCrossEntropyLoss(WEIGHTS)
    each = loss(score, label, reduction_override='none')
    assert each.shape == label.shape
    assert (each[label == 255] == 0).all()
    total = loss(score, label, reduction_override='sum')
    expected = sum(value for value, _ in slow_losses(*batch, WEIGHTS))
    assert total.item() == pytest.approx(expected, rel=1e-5)
    assert each.sum().item() == pytest.approx(expected, rel=1e-5)
    by_four = loss(score, label, avg_factor=4)
    assert by_four.item() == pytest.approx(expected / 4, rel=1e-5)
    with pytest.raises(ValueError, match='avg_factor'):
        loss(score, label, avg_factor=4, reduction_override='sum')


def test_pixel_weights(batch):
    score, label = batch
    weight = torch.zeros(label.shape)
    weight[1, 2, 3] = 1
    loss = WeightedCrossEntropyLoss(WEIGHTS, reduction='none')
    each = loss(score, label)
    kept = loss(score, label, weight=weight)
    assert kept[1, 2, 3] == each[1, 2, 3]
    assert kept.count_nonzero() == 1


@pytest.mark.parametrize('ignore_index', [255, -100, 1])
def test_it_is_mmsegs_loss_where_that_works(batch, ignore_index):
    score, label = batch
    label = label.clamp(max=2)
    theirs = CrossEntropyLoss(class_weight=WEIGHTS)
    ours = WeightedCrossEntropyLoss(WEIGHTS)
    label[label == ignore_index] = 0  # theirs may fail on ignored pixels
    expected = theirs(score, label, ignore_index=ignore_index)
    actual = ours(score, label, ignore_index=ignore_index)
    torch.testing.assert_close(actual, expected)


def test_everything_ignored_is_a_connected_zero(batch):
    score, label = batch
    loss = WeightedCrossEntropyLoss(WEIGHTS)(score, label.fill_(255))
    assert loss.item() == 0
    loss.backward()
    assert (score.grad == 0).all()


def test_half_scores(batch):
    score, label = batch
    loss = WeightedCrossEntropyLoss(WEIGHTS)
    half = score.detach().half().requires_grad_()
    result = loss(half, label)
    result.backward()
    assert result.dtype == torch.float32
    assert half.grad.dtype == torch.float16
    assert result.item() == pytest.approx(loss(*batch).item(), rel=1e-2)


@pytest.mark.parametrize('method', ['inverse', 'median', 'effective'])
def test_weights_from_statistics(batch, method):
    loss = WeightedCrossEntropyLoss(class_weight=method)
    with pytest.raises(RuntimeError, match='ClassStatsHook'):
        loss(*batch)
    loss.set_class_stats(STATS)
    expected = torch.tensor(STATS.class_weights(method))
    torch.testing.assert_close(loss.class_weight, expected)
    given = WeightedCrossEntropyLoss(STATS.class_weights(method))
    assert loss(*batch) == given(*batch)


def test_weights_from_counts_alone():
    loss = WeightedCrossEntropyLoss(class_weight='inverse')
    loss.set_class_counts([70, 20, 10])
    expected = torch.tensor(STATS.class_weights('inverse'))
    torch.testing.assert_close(loss.class_weight, expected)


def test_given_weights_stay():
    loss = WeightedCrossEntropyLoss(WEIGHTS)
    loss.set_class_stats(STATS)
    loss.set_class_counts([1, 1, 1])
    assert loss.class_weight.tolist() == WEIGHTS


def test_checkpoints_stay_interchangeable(batch):
    loss = WeightedCrossEntropyLoss(WEIGHTS)
    assert loss.state_dict() == {}
    for clone in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert clone(*batch) == loss(*batch)
    assert loss.to(torch.device('meta')).class_weight.device.type == 'meta'


@pytest.mark.parametrize(
    ('kwargs', 'message'),
    [
        ({'class_weight': 'log'}, "class_weight='log' is not one of"),
        ({'class_weight': [1.0, -1.0]}, 'must be finite and not negative'),
        ({'class_weight': [math.nan, 1.0]}, 'must be finite'),
        ({'reduction': 'max'}, "reduction='max' is not"),
    ],
)
def test_bad_arguments(kwargs, message):
    with pytest.raises(ValueError, match=message):
        WeightedCrossEntropyLoss(**kwargs)
