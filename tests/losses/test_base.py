"""What our losses have in common."""

import copy
import pickle

import pytest
import torch
from torch import nn

from mmseg_margin import ClassStats
from tests.functional.builders import value_and_gradient
from tests.losses.builders import LOSSES, STATS, WEIGHTS, build

every_loss = pytest.mark.parametrize('name', LOSSES)
close = torch.testing.assert_close


@every_loss
def test_reductions_weights_and_average(name, batch):
    _, labels = batch
    each = build(name)(*batch, reduction_override='none')
    labelled = labels != 255
    assert each.shape == labels.shape
    assert (each[~labelled] == 0).all()
    loss = build(name)
    close(loss(*batch), each[labelled].mean())
    close(build(name, reduction='sum')(*batch), each.sum())
    close(build(name, loss_weight=0.4)(*batch), 0.4 * each[labelled].mean())
    close(loss(*batch, avg_factor=7), each.sum() / 7)
    weight = torch.rand(labels.shape)
    expected = (weight * each).sum() / labelled.sum()
    close(loss(*batch, weight=weight), expected)
    close(build(name, avg_non_ignore=False)(*batch), each.mean())


@every_loss
def test_class_weights_enter_the_average(name, batch):
    each = build(name)(*batch, reduction_override='none')
    pixel = torch.tensor([*WEIGHTS, 0.0])[batch[1].clamp(max=3)]
    weighted = build(name, class_weight=WEIGHTS)
    close(weighted(*batch), (pixel * each).sum() / pixel.sum())
    total = weighted(*batch, reduction_override='sum')
    close(total, (pixel * each).sum())


@every_loss
@pytest.mark.parametrize('weights', [None, WEIGHTS])
def test_all_ignored_is_a_connected_zero_and_wrong_labels_are_named(
    name, weights, batch
):
    scores, labels = batch
    loss = build(name, class_weight=weights)
    ignored = torch.full_like(labels, 255)
    value, gradient = value_and_gradient(loss, scores, ignored)
    assert value == 0
    assert (gradient == 0).all()
    for wrong in (3, 200, -1):
        labels[0, 3, 3] = wrong
        with pytest.raises(ValueError, match=rf'Labels \[{wrong}\] lie outs'):
            loss(scores, labels)


@every_loss
def test_copies_pickles_and_state_dicts(name, batch):
    loss = build(name, class_weight=WEIGHTS)
    expected = loss(*batch)
    for twin in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        close(twin(*batch), expected)
    # Checkpoints stay interchangeable with those of any other loss.
    assert loss.state_dict() == {}
    assert nn.Sequential(loss).load_state_dict({}, strict=True)
    assert loss.to(torch.device('meta')).class_weight.device.type == 'meta'


@pytest.mark.parametrize('name', ['ce', 'focal'])
@pytest.mark.parametrize('method', ['inverse', 'sqrt', 'median'])
def test_weights_from_statistics(name, method, batch):
    counts = {'class_counts': None} if name == 'margin' else {}
    loss = build(name, class_weight=method, **counts)
    with pytest.raises(ValueError, match='ClassStatsHook'):
        loss(*batch)
    loss.set_class_stats(STATS)
    weights = STATS.class_weights(method)
    close(loss.class_weight, torch.tensor(weights))
    given = build(name, class_weight=weights)
    assert loss(*batch) == given(*batch)
    given.set_class_stats(ClassStats(['a', 'b', 'c'], *[[1, 1, 1]] * 3))
    close(given.class_weight, loss.class_weight)


@every_loss
@pytest.mark.parametrize(
    ('settings', 'call', 'word'),
    [
        ({'loss_name': 'margin'}, {}, 'loss_name'),
        ({'loss_weight': 'x'}, {}, 'loss_weight'),
        ({'class_weight': 3}, {}, 'class_weight'),
        ({'class_weight': 'root'}, {}, 'root'),
        ({'class_weight': [1.0, 2.0]}, {}, '3 classes'),
        ({'reduction': 'max'}, {}, 'reduction'),
        ({}, {'weight': torch.ones(2, 8, 6)}, 'weight'),
    ],
)
def test_mistakes_are_named(name, batch, settings, call, word):
    with pytest.raises(ValueError, match=word):
        build(name, **settings)(*batch, **call)
