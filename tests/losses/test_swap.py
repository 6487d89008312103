"""Which heads get an objective, with what weight, and which cannot."""

import pytest
import torch
from mmseg.models import FCNHead
from mmseg.models.decode_heads import (
    DDRHead,
    IterativeDecodeHead,
    PIDHead,
    STDCHead,
)
from mmseg.models.losses import BoundaryLoss, CrossEntropyLoss
from torch import nn

from mmseg_margin.errors import SettingError
from mmseg_margin.losses import MarginCalibrationLoss
from mmseg_margin.losses.objectives import parse_objective
from mmseg_margin.losses.swap import swap_losses, weight_cross_entropy

CE = {'type': 'CrossEntropyLoss'}
LOVASZ = {'type': 'LovaszLoss', 'reduction': 'none', 'loss_weight': 3.0}


def make_head(kind=FCNHead, num_classes=3, in_channels=8, **settings):
    return kind(
        in_channels=in_channels,
        channels=4,
        num_classes=num_classes,
        **settings,
    )


def model_of(head, auxiliary=None):
    return nn.ModuleDict(
        {'decode_head': head}
        | ({'auxiliary_head': auxiliary} if auxiliary else {})
    )


def swapped(objective, **settings):
    """The losses of one head after the swap."""
    head = make_head(**settings)
    swap_losses(model_of(head), parse_objective(objective))
    return head.loss_decode


@pytest.mark.parametrize(
    ('losses', 'weight'),
    [
        ({**CE, 'loss_weight': 0.4}, 0.4),
        ([{**CE, 'loss_weight': 1.0}, LOVASZ], 1.0),
        ([LOVASZ, {**CE, 'loss_weight': 0.5}], 0.5),
        ([LOVASZ], 3.0),
    ],
)
def test_the_weight_of_the_cross_entropy_is_kept(losses, weight):
    loss = swapped('margin', loss_decode=losses)
    assert isinstance(loss, MarginCalibrationLoss)
    assert loss.loss_weight == weight
    assert swapped('margin:2', loss_decode=losses).loss_weight == 2 * weight
    both = swapped('ce:0.5+lovasz', loss_decode=losses)
    assert [term.loss_weight for term in both] == [0.5 * weight, weight]


def test_heads_that_index_their_losses_keep_the_other_terms():
    losses = [{**CE, 'loss_weight': w} for w in (0.4, 1.0, 2.0)]
    losses.insert(2, {'type': 'BoundaryLoss', 'loss_weight': 20.0})
    terms = swapped('ce+lovasz', kind=PIDHead, loss_decode=losses)
    assert isinstance(terms[2], BoundaryLoss)
    weights = [[x.loss_weight for x in terms[i]] for i in (0, 1, 3)]
    assert weights == [[0.4, 0.4], [1.0, 1.0], [2.0, 2.0]]
    scores, labels = torch.rand(1, 3, 4, 4), torch.zeros(1, 4, 4).long()
    expected = sum(term(scores, labels) for term in terms[0])
    assert terms[0](scores, labels, ignore_index=255) == expected
    assert len(swapped('margin', kind=DDRHead, loss_decode=losses[:2])) == 2


class Mask2FormerHead(nn.Module):
    """Like mmdet's, which is no decode head of mmseg."""


def test_a_head_of_any_name():
    model = nn.ModuleDict({'my_head': make_head()})
    assert swap_losses(model, parse_objective('ce')) == ['my_head']


def test_some_heads_of_a_built_model():
    """Boundary heads keep their losses; heads can be chosen by name."""
    boundary, terms = make_head(STDCHead, 2), parse_objective('margin')
    heads = [make_head(), make_head(), boundary]
    model = model_of(make_head(), nn.ModuleList(heads))
    both = ['auxiliary_head.0', 'auxiliary_head.1']
    assert swap_losses(model, terms) == ['decode_head', *both]
    assert isinstance(boundary.loss_decode, CrossEntropyLoss)
    assert swap_losses(model, terms, both[1:]) == both[1:]
    assert swap_losses(model, terms, ['auxiliary_head']) == both
    for only in (['decode'], ['auxiliary_head.2']):
        with pytest.raises(SettingError, match='are decode_head, aux'):
            swap_losses(model, terms, only)


@pytest.mark.parametrize(
    'objective', ['ce', 'wce:class_weight=None', 'margin', 'lovasz', 'dice']
)
def test_one_score_of_a_binary_head_is_worth_two(objective):
    loss = swapped(objective, num_classes=2, out_channels=1, threshold=0.5)
    if hasattr(loss, 'set_class_counts'):
        loss.set_class_counts([5, 11])
    scores = torch.randn(2, 1, 4, 4)
    labels = torch.randint(0, 2, (2, 4, 4))
    labels[0, 0] = 255
    both = torch.cat([torch.zeros_like(scores), scores], 1)
    value = loss(scores, labels, ignore_index=255)
    assert torch.equal(value, loss(both, labels, ignore_index=255))
    if objective.startswith(('ce', 'wce')):
        average = objective != 'ce'  # mmseg's default counts void pixels
        sigmoid = CrossEntropyLoss(use_sigmoid=True, avg_non_ignore=average)
        expected = sigmoid(scores, labels, ignore_index=255)
        torch.testing.assert_close(value, expected)


def test_class_weights_of_the_statistics():
    """mmseg's cross-entropy is replaced where it can have them."""
    kept = [{**CE, 'use_sigmoid': True}, {**CE, 'class_weight': [1, 2, 3]}]
    heads = [make_head(loss_decode=loss) for loss in kept]
    heads += [make_head(STDCHead, 2), make_head(loss_decode=[LOVASZ, CE])]
    model = model_of(make_head(loss_decode={**CE, 'loss_weight': 0.4}))
    # As K-Net's, which has its losses in an inner head.
    iterative = IterativeDecodeHead.__new__(IterativeDecodeHead)
    nn.Module.__init__(iterative)
    model['auxiliary_head'] = nn.ModuleList([*heads, iterative])
    weight_cross_entropy(model, 'sqrt')
    types = [type(head.loss_decode) for head in heads[:3]]
    assert types == [CrossEntropyLoss] * 3
    new = model['decode_head'].loss_decode, heads[3].loss_decode[1]
    assert [loss.weight_method for loss in new] == ['sqrt', 'sqrt']
    assert [loss.loss_weight for loss in new] == [0.4, 1.0]


class VPDDepthHead(FCNHead):
    """Like mmseg's, which predicts depth."""


SAMPLER = {'type': 'OHEMPixelSampler'}


@pytest.mark.parametrize(
    ('head', 'objective', 'word'),
    [
        (Mask2FormerHead(), 'margin', 'Mask2FormerHead'),
        (make_head(VPDDepthHead), 'ce', 'no score for each pixel'),
        (make_head(sampler=SAMPLER), 'dice', 'sampler'),
        (make_head(sampler=SAMPLER), 'ce+lovasz', 'whole images'),
        (make_head(), 'ce:class_weight=[1,2]', '2 numbers .* 3 classes'),
        (make_head(), 'margin:class_counts=[4,5],class_weight=[1]', '1 numb'),
        (None, 'margin', 'heads are none'),
    ],
)
def test_mistakes_are_named(head, objective, word):
    model = model_of(head) if head else nn.ModuleDict()
    with pytest.raises(SettingError, match=word):
        swap_losses(model, parse_objective(objective))
