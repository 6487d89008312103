"""The search space, and what is tried in which order."""

import optuna
import pytest
from optuna.trial import create_trial

from mmseg_margin.losses import MarginCalibrationLoss
from mmseg_margin.tuning.search_space import (
    LARGEST_OFFSET,
    PARAMETERS,
    loss_with,
    propose,
    search_space,
    setting_of,
)

COUNTS = [900, 100]
PAPER = setting_of({}, COUNTS)
OWN = {**PAPER, 'form': 'target', 'pos_weight': 3.0, 'largest_offset': 50.0}
STARTS = [PAPER, OWN]


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def search(count, seed=0):
    """Settings of a search that likes a focus."""
    trials = []
    for _ in range(count):
        trial = propose(trials, STARTS, seed)
        setting = trial.params
        trials.append(
            create_trial(
                params=setting,
                distributions=trial.distributions,
                value=setting.get('focus', 0.0),
            )
        )
    return [trial.params for trial in trials]


def test_a_setting_has_the_defaults_of_the_loss():
    assert {
        'form': 'paper',
        'pos_weight': 1.0,
        'focus': 0.0,
        'log_base': 2,
        'class_weight': None,
        # 10 sqrt(900) / 100
        'largest_offset': pytest.approx(3.0),
    } == PAPER
    own = setting_of({'type': 'X', 'form': 'softmax', 'tau': 5}, COUNTS)
    assert own['largest_offset'] == pytest.approx(1.5)
    assert 'pos_weight' not in own
    best = setting_of({'preset': 'recommended'}, COUNTS)
    assert best['form'] == 'jaccard'
    assert best['largest_offset'] == LARGEST_OFFSET[0]


def test_the_space_is_widened_to_the_starting_points():
    space = search_space(STARTS)
    assert space['pos_weight'].choices == (1.0, 'num_classes', 3.0)
    offsets = space['largest_offset']
    assert (offsets.low, offsets.high) == (LARGEST_OFFSET[0], 50.0)


def test_only_what_a_form_has_is_tried():
    """And the loss takes every setting that is tried."""
    space = search_space(STARTS)
    settings = search(30)
    assert {setting['form'] for setting in settings} == set(PARAMETERS)
    for setting in settings:
        assert set(setting) == {'form', *PARAMETERS[setting['form']]}
        for name, value in setting.items():
            internal = space[name].to_internal_repr(value)
            assert space[name]._contains(internal)
        own = {'tau': 3.0, 'upsilon': 2.0, 'focus': 9.0, 'memory': 0.1}
        arguments = loss_with(own, setting)
        assert arguments == {'upsilon': 2.0, **setting}
        loss = MarginCalibrationLoss(**arguments)
        loss.set_class_counts(COUNTS)
        assert loss.rho_0k.max() == pytest.approx(setting['largest_offset'])


def test_the_search_begins_with_the_starting_points():
    assert search(2) == STARTS


def test_the_same_trials_give_the_same_setting():
    first, second = search(14), search(14)
    assert first == second
    assert search(14, seed=1)[2:] != first[2:]


def test_the_search_learns():
    """After the random beginning it looks where it was good."""
    assert sum(setting.get('focus') == 2 for setting in search(30)[20:]) >= 7
