"""What our losses have in common."""

import copy
import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.functional.builders import value_and_gradient
from tests.losses.builders import COUNTS, LOSSES, STATS, WEIGHTS, build

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
    if name != 'focal':
        close(build(name, avg_non_ignore=False)(*batch), each.mean())
    with pytest.raises(ValueError, match='avg_factor'):
        loss(*batch, avg_factor=4, reduction_override='sum')
    with pytest.raises(ValueError, match=r'like the labels \(2, 6, 8\)'):
        loss(*batch, weight=torch.ones(2, 8, 6))


@every_loss
def test_class_weights_enter_the_average(name, batch):
    each = build(name)(*batch, reduction_override='none')
    pixel = torch.tensor([*WEIGHTS, 0.0])[batch[1].clamp(max=3)]
    weighted = build(name, class_weight=WEIGHTS)
    close(weighted(*batch), (pixel * each).sum() / pixel.sum())
    total = weighted(*batch, reduction_override='sum')
    close(total, (pixel * each).sum())
    with pytest.raises(ValueError, match='2 numbers but the head 3 classes'):
        build(name, class_weight=[1.0, 2.0])(*batch)


@every_loss
@pytest.mark.parametrize('weights', [None, WEIGHTS])
def test_all_ignored_is_a_connected_zero(name, weights, batch):
    scores, labels = batch
    loss, gradient = value_and_gradient(
        build(name, class_weight=weights), scores, labels.fill_(255)
    )
    assert loss == 0
    assert (gradient == 0).all()


@every_loss
def test_only_the_margin_loss_needs_the_class_counts(name, batch):
    gradients = []
    for counts in ([900, 80, 20], [20, 80, 900]):
        loss = build(name)
        loss.set_class_counts(counts)
        gradients.append(value_and_gradient(loss, *batch)[1])
    assert torch.allclose(*gradients) == (name != 'margin')
    assert loss.needs_statistics == (name == 'margin')


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
@pytest.mark.parametrize('method', ['inverse', 'sqrt', 'median', 'effective'])
def test_weights_from_statistics(name, method, batch):
    loss = build(name, class_weight=method)
    with pytest.raises(RuntimeError, match='ClassStatsHook'):
        loss(*batch)
    loss.set_class_stats(STATS)
    weights = STATS.class_weights(method)
    close(loss.class_weight, torch.tensor(weights))
    assert loss(*batch) == build(name, class_weight=weights)(*batch)


@pytest.mark.parametrize('kind', ['counts', 'json', 'hook'])
def test_class_weights_mean_the_same_in_all_losses(kind, tmp_path):
    others = build('ce', class_weight='median')
    others.set_class_stats(STATS)
    STATS.to_json(tmp_path / 'stats.json')
    counts = {'counts': COUNTS, 'json': tmp_path / 'stats.json'}.get(kind)
    ours = build('margin', class_weight='median', class_counts=counts)
    if kind == 'hook':
        ours.set_class_stats(STATS)
    # Counts alone do not tell which images show a class.
    same = torch.allclose(ours.class_weight, others.class_weight)
    assert same == (kind != 'counts')


def test_given_weights_stay_and_counts_alone_are_enough():
    given, derived = (
        build('ce', class_weight=weight) for weight in (WEIGHTS, 'inverse')
    )
    given.set_class_stats(STATS)
    for loss in (given, derived):
        loss.set_class_counts(COUNTS)
    assert given.class_weight.tolist() == WEIGHTS
    close(derived.class_weight, torch.tensor(STATS.class_weights('inverse')))


@every_loss
@pytest.mark.parametrize('weights', [None, WEIGHTS])
@pytest.mark.parametrize('value', [3, 200, -1])
def test_a_wrong_label_is_named(name, value, weights, batch):
    scores, labels = batch
    labels[0, 3, 3] = value
    with pytest.raises(ValueError, match=rf'Labels \[{value}\] lie outside'):
        build(name, class_weight=weights)(scores, labels)


@pytest.mark.parametrize('name', ['ce', 'margin'])
def test_a_binary_head_has_the_scores_zero_and_its_own(name):
    scores = torch.randn(2, 1, 4, 5)
    labels = torch.randint(0, 2, (2, 4, 5))
    labels[0, 0] = 255
    loss = build(name)
    loss.set_class_counts([90, 10])
    both = torch.cat([torch.zeros_like(scores), scores], 1)
    assert loss(scores, labels) == loss(both, labels)
    if name == 'ce':
        sigmoid = F.binary_cross_entropy_with_logits(
            scores[:, 0][labels != 255], labels[labels != 255].float()
        )
        close(loss(scores, labels), sigmoid)


@every_loss
@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        ({'loss_name': 'margin'}, 'must contain "loss"'),
        ({'class_weight': 3}, 'class_weight=3'),
        ({'class_weight': 'root'}, "class_weight='root' is not one of"),
        ({'class_weight': [1.0, -1.0]}, 'must be finite and not negative'),
        ({'class_weight': [math.nan, 1.0]}, 'must be finite'),
        ({'reduction': 'max'}, "reduction='max' is not one of"),
    ],
)
def test_bad_settings(name, settings, message):
    with pytest.raises(ValueError, match=message):
        build(name, **settings)
