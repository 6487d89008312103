"""A config whose trials take about a second."""

from pathlib import Path

import pytest
from mmengine.config import Config

from tests.small_training import write_config

ITERATIONS = 4


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
