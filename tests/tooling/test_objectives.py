"""--losses: objectives by name, with settings of their own."""

import pytest

from mmseg_margin.tooling.objectives import OBJECTIVES, loss_config


def test_a_name_alone_is_the_objective():
    for name, loss in OBJECTIVES.items():
        assert loss_config(name) == loss


def test_settings_are_numbers_or_words():
    loss = loss_config('margin:tau=20,class_weight=None,form=target')
    assert loss['tau'] == 20
    assert loss['class_weight'] is None
    assert loss['form'] == 'target'
    assert 'tau' not in OBJECTIVES['margin']


@pytest.mark.parametrize(
    ('objective', 'message'),
    [
        ('margins', "'margins' is not known"),
        ('margin:tau', 'without a value'),
        ('margin:teu=3', "no setting 'teu': it has preset"),
        ('focal:beta=1', "SoftmaxFocalLoss has no setting 'beta'"),
        ('ce:tau=1', "CrossEntropyLoss has no setting 'tau'"),
    ],
)
def test_mistakes_are_named(objective, message):
    with pytest.raises(ValueError, match=message):
        loss_config(objective)
