"""A config whose trials take about a second."""

from pathlib import Path

import pytest
from mmengine.config import Config

from tests.small_training import PLAIN, training_config
from tests.stats.builders import write_set

ITERATIONS = 4


@pytest.fixture(scope='session')
def config(tmp_path_factory) -> Path:
    """A few iterations on four classes; the test split does not exist."""
    folder = tmp_path_factory.mktemp('tuning')
    training = training_config(
        write_set(folder / 'data', 6),
        folder,
        max_iters=ITERATIONS,
        loss={'form': 'target'},
        test_cfg={'type': 'TestLoop'},
    )
    loader = {
        'batch_size': 1,
        'num_workers': 0,
        'sampler': {'type': 'DefaultSampler', 'shuffle': False},
    }
    dataset = {**training.train_dataloader.dataset, 'pipeline': list(PLAIN)}
    training.val_dataloader = {**loader, 'dataset': dataset}
    training.test_dataloader = {
        **loader,
        'dataset': {**dataset, 'data_root': 'not to be read'},
    }
    path = folder / 'small.py'
    training.dump(path)
    return path


@pytest.fixture
def cfg(config) -> Config:
    return Config.fromfile(config)
