"""Objectives by name, with settings of their own, and sums of them."""

import pytest

from mmseg_margin.errors import SettingError
from mmseg_margin.losses import JaccardLoss, MarginCalibrationLoss
from mmseg_margin.losses.objectives import (
    OBJECTIVES,
    build_loss,
    parse_objective,
    try_loss,
)


def test_a_name_alone_is_the_objective():
    for name, loss in OBJECTIVES.items():
        assert parse_objective(name) == parse_objective(loss) == [loss]
    paper, ours = (build_loss(OBJECTIVES[x]) for x in ('margin', 'jaccard'))
    assert type(paper) is MarginCalibrationLoss
    assert type(ours) is JaccardLoss


def test_settings_are_numbers_words_or_lists():
    margin = dict(OBJECTIVES['margin'])
    (loss,) = parse_objective('margin:tau=20,class_weight=[1,2.5],log_base=e')
    given = {'tau': 20, 'class_weight': [1, 2.5], 'log_base': 'e'}
    assert loss == margin | given
    (loss,) = parse_objective('margin:2,tau=1e+3,class_weight=None')
    given = {'loss_weight': 2, 'tau': 1000.0, 'class_weight': None}
    assert loss == margin | given
    assert OBJECTIVES['margin'] == margin


def test_a_sum_shows_every_term_in_the_log():
    terms = parse_objective('ce:0.5+lovasz:0.25+ce:class_weight=[1,2]')
    assert [term.get('loss_weight') for term in terms] == [0.5, 0.25, None]
    names = [build_loss(term).loss_name for term in terms]
    assert names == ['loss_ce_0', 'loss_lovasz', 'loss_ce_2']
    assert parse_objective(terms) == terms


def test_which_objectives_need_statistics():
    needed = {
        name
        for name, term in OBJECTIVES.items()
        if getattr(try_loss(term), 'needs_statistics', False)
    }
    assert needed == {'margin', 'margin-authors', 'wce', 'wfocal'}


@pytest.mark.parametrize(
    ('objective', 'message'),
    [
        ('margins', "'margins' is not known: take one of jaccard, margin"),
        ('margin-paper', 'margin-paper is now called margin'),
        ('margin:preset=recommended', 'the objective jaccard'),
        ('ce+magic', r"'ce\+magic' is not known"),
        ('margin:tau', 'without a value: write NAME:weight,key=value'),
        ('ce:loss_name=loss_x,0.5', 'without a value'),
        ('margin:teu=3', "no setting 'teu': it has preset"),
        ('focal:beta=1', "SoftmaxFocalLoss has no setting 'beta'"),
        ('ce:tau=1', "CrossEntropyLoss has no setting 'tau'"),
        ('margin:tau=abc', "tau='abc'"),
        ('margin:log_base=bogus', "log_base='bogus'"),
        ('lovasz:reduction=bogus', 'LovaszLoss cannot work with'),
        ('ce:loss_weight=abc', "loss_weight='abc' must be a number"),
        ('dice:eps=abc', 'DiceLoss cannot work with'),
        ({'tau': 3}, 'no type'),
        ({'type': 'NoSuchLoss'}, 'no type that MMSegmentation knows'),
    ],
)
def test_mistakes_are_named(objective, message):
    with pytest.raises(SettingError, match=message):
        [try_loss(term) for term in parse_objective(objective)]
