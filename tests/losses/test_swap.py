"""Which heads get an objective, with what weight, and which cannot."""

import pytest
from mmseg.models import FCNHead
from mmseg.models.decode_heads import DDRHead, STDCHead
from mmseg.models.losses import CrossEntropyLoss
from torch import nn

from mmseg_margin.errors import SettingError
from mmseg_margin.losses import MarginCalibrationLoss
from mmseg_margin.losses.objectives import parse_objective
from mmseg_margin.losses.swap import swap_losses

CE = {'type': 'CrossEntropyLoss'}
LOVASZ = {'type': 'LovaszLoss', 'reduction': 'none', 'loss_weight': 3.0}
SAMPLER = {'type': 'OHEMPixelSampler'}


def make_head(kind=FCNHead, num_classes=3, **settings):
    return kind(in_channels=8, channels=4, num_classes=num_classes, **settings)


def swapped(objective, **settings):
    """The losses of one head, of any name, after the swap."""
    head = make_head(**settings)
    model = nn.ModuleDict({'my_head': head})
    assert swap_losses(model, parse_objective(objective)) == ['my_head']
    return head.loss_decode


@pytest.mark.parametrize(
    ('losses', 'weight'),
    [
        ({**CE, 'loss_weight': 0.4}, 0.4),
        ([LOVASZ, {**CE, 'loss_weight': 0.5}], 0.5),
        ([LOVASZ], 3.0),
    ],
)
def test_the_weight_of_the_cross_entropy_is_kept(losses, weight):
    loss = swapped('margin', loss_decode=losses)
    assert isinstance(loss, MarginCalibrationLoss)
    assert loss.loss_weight == weight
    both = swapped('ce:0.5+lovasz', loss_decode=losses)
    assert [term.loss_weight for term in both] == [0.5 * weight, weight]


def test_some_heads_of_a_built_model():
    """Boundary heads keep their losses; heads can be chosen by name."""
    boundary, terms = make_head(STDCHead, 2), parse_objective('margin')
    heads = nn.ModuleList([make_head(), make_head(), boundary])
    model = {'decode_head': make_head(), 'auxiliary_head': heads}
    model = nn.ModuleDict(model)
    both = ['auxiliary_head.0', 'auxiliary_head.1']
    assert swap_losses(model, terms) == ['decode_head', *both]
    assert isinstance(boundary.loss_decode, CrossEntropyLoss)
    assert swap_losses(model, terms, both[1:]) == both[1:]
    assert swap_losses(model, terms, ['auxiliary_head']) == both
    for only in (['decode'], ['auxiliary_head.2']):
        with pytest.raises(SettingError, match='has no'):
            swap_losses(model, terms, only)


class Mask2FormerHead(nn.Module):
    """Like mmdet's, which is no decode head of mmseg."""


@pytest.mark.parametrize(
    ('head', 'objective', 'word'),
    [
        (Mask2FormerHead(), 'margin', 'Mask2FormerHead'),
        (make_head(DDRHead, loss_decode=[CE, CE]), 'ce', 'into the config'),
        (make_head(sampler=SAMPLER), 'dice', 'sampler'),
        (make_head(sampler=SAMPLER), 'ce+lovasz', 'whole images'),
        (make_head(num_classes=2, out_channels=1), 'ce', 'out_channels=2'),
        (nn.ModuleList(), 'margin', 'has no decode_head'),
    ],
)
def test_heads_that_cannot_are_named(head, objective, word):
    model = nn.ModuleDict({'decode_head': head})
    with pytest.raises(SettingError, match=word):
        swap_losses(model, parse_objective(objective))
