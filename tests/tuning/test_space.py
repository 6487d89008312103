"""The search space, and what is tried in which order."""

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from mmseg_margin.losses import MarginCalibrationLoss
from mmseg_margin.tuning.space import (
    PAPER,
    RANGES,
    next_setting,
    search_space,
    setting_of,
)

OWN = {**PAPER, 'form': 'target', 'pos_weight': 3.0, 'tau': 5000.0}
STARTS = [PAPER, OWN]


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def finished(setting, value=None):
    return create_trial(
        state=TrialState.PRUNED if value is None else TrialState.COMPLETE,
        value=value,
        params=setting,
        distributions=search_space(STARTS),
    )


def search(count, seed=0):
    """Settings of a search that likes a large tau and dislikes 'target'."""
    trials = []
    for _ in range(count):
        setting = next_setting(trials, STARTS, seed)
        value = None if setting['form'] == 'target' else setting['tau']
        trials.append(finished(setting, value))
    return [trial.params for trial in trials]


def test_the_paper_s_setting_is_in_the_space():
    space = search_space([PAPER])
    assert space.keys() == PAPER.keys()
    assert all(
        distribution._contains(distribution.to_internal_repr(PAPER[name]))
        for name, distribution in space.items()
    )
    assert (space['tau'].low, space['tau'].high) == RANGES['tau']


def test_the_space_is_widened_to_a_config_s_own_setting():
    space = search_space(STARTS)
    assert space['pos_weight'].choices == (1.0, 'num_classes', 3.0)
    assert (space['tau'].low, space['tau'].high) == (0.1, 5000.0)


def test_a_setting_has_the_defaults_of_the_loss():
    loss = MarginCalibrationLoss()
    setting = setting_of({'type': 'MarginCalibrationLoss', 'tau': 3.0})
    assert setting['tau'] == 3.0
    assert setting['upsilon'] == loss.upsilon
    assert setting['form'] == loss.settings.form


def test_the_search_begins_with_the_starting_points():
    assert search(2) == STARTS


def test_the_same_trials_give_the_same_setting():
    first, second = search(14), search(14)
    assert first == second
    assert search(14, seed=1)[2:] != first[2:]


def test_settings_stay_in_the_space():
    space = search_space(STARTS)
    for setting in search(14):
        for name, value in setting.items():
            internal = space[name].to_internal_repr(value)
            assert space[name]._contains(internal)


def test_the_search_learns():
    """After the random beginning it avoids what never gave a result."""
    settings = search(40)
    shunned = sum(s['form'] == 'target' for s in settings[20:])
    assert shunned <= 5
