"""A config whose trials take about a second, and trials that took none."""

from pathlib import Path

import pytest
from mmengine.config import Config
from optuna.trial import TrialState, create_trial

from mmseg_margin.tuning.search_space import SearchSpace
from tests.small_training import write_config

ITERATIONS = 4
COUNTS = [900, 100]
MARGIN = {'type': 'MarginCalibrationLoss'}
SPACE = SearchSpace(MARGIN, COUNTS)


def add_trial(shared, setting, value, state=TrialState.COMPLETE, points=None):
    trial = create_trial(
        state=state,
        value=value,
        params=setting,
        distributions={name: SPACE.distributions[name] for name in setting},
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
        loss={'log_base': 'e'},
    )


@pytest.fixture
def cfg(config) -> Config:
    return Config.fromfile(config)
