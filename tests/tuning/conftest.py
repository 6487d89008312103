"""A config whose trials take about a second, and trials that took none."""

from pathlib import Path

import pytest
from mmengine.config import Config
from mmseg_margin.losses.presets import PRESETS
from optuna.trial import TrialState, create_trial

from mmseg_margin.tuning.search_space import search_space, setting_of
from tests.small_training import write_config

ITERATIONS = 4
SPACE = search_space([setting_of({'preset': p}, [9, 1]) for p in PRESETS])


def add_trial(shared, setting, value, state=TrialState.COMPLETE, points=None):
    trial = create_trial(
        state=state,
        value=value,
        params=setting,
        distributions={name: SPACE[name] for name in setting},
        intermediate_values=points,
    )
    shared.study.add_trial(trial)


@pytest.fixture(scope='session')
def config(tmp_path_factory) -> Path:
    """A few iterations on four classes; the test split does not exist."""
    return write_config(
        tmp_path_factory.mktemp('tuning') / 'small.py',
        test_root='not to be read',
        max_iters=ITERATIONS,
        loss={'form': 'target'},
    )


@pytest.fixture
def cfg(config) -> Config:
    return Config.fromfile(config)
