"""Objectives by name, with settings of their own, and sums of them."""

import pytest

from mmseg_margin.errors import SettingError
from mmseg_margin.hooks import SwapLossHook
from mmseg_margin.losses.objectives import (
    OBJECTIVES,
    build_loss,
    parse_objective,
)

CE = {'type': 'CrossEntropyLoss'}


def test_a_name_alone_is_the_objective():
    for name, loss in OBJECTIVES.items():
        assert parse_objective(name) == parse_objective(loss) == [loss]
    needed = {
        name
        for name, term in OBJECTIVES.items()
        if getattr(build_loss(term), 'needs_statistics', False)
    }
    assert needed == {'margin', 'margin-authors', 'wce', 'wfocal'}


def test_the_hook_without_an_argument_is_jaccard():
    assert SwapLossHook().terms == parse_objective('jaccard')


@pytest.mark.parametrize(
    ('text', 'settings'),
    [
        ('margin:tau=20,log_base=e', {'tau': 20, 'log_base': 'e'}),
        ('margin:2,tau=1e+3', {'loss_weight': 2, 'tau': 1000.0}),
        ('margin:class_weight=[1,2.5]', {'class_weight': [1, 2.5]}),
        ('wce:class_weight=none', {'class_weight': None}),
        ('ce:use_sigmoid=false', {'use_sigmoid': False}),
        ('lovasz:reduction=none', {'reduction': 'none'}),
    ],
)
def test_settings_are_read_as_in_cfg_options(text, settings):
    name = text.partition(':')[0]
    before = dict(OBJECTIVES[name])
    assert parse_objective(text) == [before | settings]
    assert OBJECTIVES[name] == before


def test_a_sum_is_a_list_of_terms():
    terms = parse_objective('ce:0.5+lovasz:0.25+ce:class_weight=[1,2]')
    assert [term.get('loss_weight') for term in terms] == [0.5, 0.25, None]
    assert parse_objective(terms) == terms


@pytest.mark.parametrize(
    ('objective', 'word'),
    [
        ('jacard', 'Did you mean jaccard'),
        ('ce+magic', "'magic' is not known"),
        ('', "'' is not known"),
        ([], 'no terms'),
        ('margin:tau', 'without a value'),
        ('margin:taus=3', 'Did you mean tau'),
        ('focal:gama=1', 'Did you mean gamma'),
        ('ce:tau=1', "no setting 'tau'"),
        ('margin:tau=abc', 'tau'),
        ('focal:gamma=-1', 'gamma'),
        ('lovasz:reduction=bogus', 'LovaszLoss cannot work'),
        ('ce:class_weight=missing.npy', 'missing.npy'),
        ('ce:use_sigmoid=maybe', 'true or false'),
        ('tversky:alpha=true', 'alpha=True must be a number'),
        ({'type': 'DiceLoss', 'eps': 'abc'}, 'eps'),
        ('ce:1e999', 'positive number'),
        ('ce:-1', 'positive number'),
        ('ce:0+lovasz', 'positive number'),
        ({**CE, 'loss_weight': float('nan')}, 'positive number'),
        ('ce:0.5,loss_name=x+lovasz:0.5', 'loss_name'),
        ({'type': 'LovaszLoss', 'loss_name': 'x'}, 'LovaszLoss|loss_name'),
        ({'type': 'NoSuchLoss'}, 'no type'),
    ],
)
def test_mistakes_are_named(objective, word):
    with pytest.raises(SettingError, match=word):
        parse_objective(objective)
    with pytest.raises(SettingError, match=word):
        SwapLossHook(objective)
