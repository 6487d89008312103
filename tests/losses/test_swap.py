"""Which heads get an objective, with what weight, and which cannot."""

import pytest
import torch
from mmseg.models import FCNHead
from mmseg.models.decode_heads import DDRHead, PIDHead, STDCHead
from mmseg.models.losses import BoundaryLoss, CrossEntropyLoss
from torch import nn

from mmseg_margin.errors import SettingError
from mmseg_margin.heads import heads_of_config
from mmseg_margin.losses import MarginCalibrationLoss
from mmseg_margin.losses.objectives import parse_objective
from mmseg_margin.losses.swap import semantic_heads, swap_losses

CE = {'type': 'CrossEntropyLoss'}
DICE = {'type': 'DiceLoss', 'loss_weight': 3.0}


def make_head(kind=FCNHead, num_classes=3, **settings):
    return kind(in_channels=8, channels=4, num_classes=num_classes, **settings)


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
        ([{**CE, 'loss_weight': 1.0}, DICE], 1.0),
        ([DICE, {**CE, 'loss_weight': 0.5}], 0.5),
        ([DICE], 3.0),
    ],
)
def test_the_weight_of_the_cross_entropy_is_kept(losses, weight):
    loss = swapped('margin', loss_decode=losses)
    assert isinstance(loss, MarginCalibrationLoss)
    assert loss.loss_weight == weight
    assert swapped('margin:2', loss_decode=losses).loss_weight == 2 * weight
    both = swapped('ce:0.5+lovasz', loss_decode=losses)
    assert [term.loss_weight for term in both] == [0.5 * weight, weight]


def test_everything_else_stays():
    head = make_head(ignore_index=7, align_corners=True)
    before = dict(head.state_dict())
    swap_losses(model_of(head), parse_objective('tversky'))
    assert (head.num_classes, head.ignore_index) == (3, 7)
    assert head.align_corners
    assert head.loss_decode.ignore_index == 7
    assert head.state_dict().keys() == before.keys()


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


def test_boundary_heads_keep_their_own():
    boundary = make_head(STDCHead, 2)
    model = model_of(make_head(), nn.ModuleList([make_head(), boundary]))
    names = swap_losses(model, parse_objective('margin'))
    assert names == ['decode_head', 'auxiliary_head.0']
    assert isinstance(boundary.loss_decode, CrossEntropyLoss)


class Mask2FormerHead(nn.Module):
    """Like mmdet's, which is no decode head of mmseg."""


def test_a_built_model_is_refused_with_the_same_reason():
    with pytest.raises(SettingError, match='assigns masks to queries'):
        swap_losses(model_of(Mask2FormerHead()), parse_objective('margin'))
    boundaries = model_of(make_head(), make_head(STDCHead, 2))
    with pytest.raises(SettingError, match='no auxiliary_head that could'):
        swap_losses(boundaries, parse_objective('margin'), ['auxiliary_head'])


def test_only_the_heads_that_are_named():
    model = model_of(make_head(), nn.ModuleList([make_head(), make_head()]))
    terms = parse_objective('margin')
    assert swap_losses(model, terms, ['auxiliary_head.1']) == [
        'auxiliary_head.1'
    ]
    assert len(swap_losses(model, terms, ['auxiliary_head'])) == 2
    with pytest.raises(SettingError, match='are decode_head, aux'):
        swap_losses(model, terms, ['decode'])


@pytest.mark.parametrize(
    'objective', ['ce', 'margin:backend=eager', 'lovasz', 'dice']
)
def test_one_score_of_a_binary_head_is_worth_two(objective):
    loss = swapped(objective, num_classes=2, out_channels=1, threshold=0.5)
    if hasattr(loss, 'set_class_counts'):
        loss.set_class_counts([5, 11])
    scores = torch.randn(2, 1, 4, 4)
    labels = torch.randint(0, 2, (2, 4, 4))
    labels[0, 0] = 255
    both = torch.cat([torch.zeros_like(scores), scores], 1)
    assert torch.equal(
        loss(scores, labels, ignore_index=255),
        loss(both, labels, ignore_index=255),
    )
    if objective == 'ce':
        sigmoid = CrossEntropyLoss(use_sigmoid=True)
        torch.testing.assert_close(
            loss(scores, labels, ignore_index=255),
            sigmoid(scores, labels, ignore_index=255),
        )


@pytest.mark.parametrize(
    ('head', 'objective', 'said'),
    [
        (
            {'type': 'Mask2FormerHead'},
            'margin',
            'a Mask2FormerHead, which assigns masks',
        ),
        ({'type': 'SideAdapterCLIPHead'}, 'ce', 'assigns masks to queries'),
        ({'type': 'VPDDepthHead'}, 'ce', 'predicts depth instead of classes'),
        ({'type': 'PointHead'}, 'ce+lovasz', 'LovaszLoss needs whole images'),
        ({'type': 'FCNHead', 'sampler': CE}, 'dice', 'take the sampler out'),
        (
            {'type': 'FCNHead', 'num_classes': 3},
            'ce:class_weight=[1,2]',
            '2 entries and decode_head 3 classes',
        ),
        (None, 'margin', 'no decode_head or auxiliary_head that .* none'),
    ],
)
def test_what_cannot_be_served_is_said(head, objective, said):
    found = heads_of_config({'decode_head': head})
    with pytest.raises(SettingError, match=said):
        semantic_heads(found, parse_objective(objective))
