"""One fake Cityscapes and one untrained model for all tests here."""

from pathlib import Path

import pytest

from tests.evaluation.fakes import (
    make_benchmark,
    write_checkpoint,
    write_config,
)


@pytest.fixture(scope='session')
def cityscapes(tmp_path_factory) -> Path:
    """Root of a fake Cityscapes; not to be written to."""
    return make_benchmark(tmp_path_factory.mktemp('cityscapes'))


@pytest.fixture(scope='session')
def checkpoint(tmp_path_factory, cityscapes) -> Path:
    """Weights of the tiny model for Cityscapes."""
    folder = tmp_path_factory.mktemp('model')
    config = write_config(folder / 'config.py', cityscapes)
    return write_checkpoint(config, folder / 'model.pth')


@pytest.fixture
def config(tmp_path, cityscapes) -> Path:
    """A config file with a separate work dir for each test."""
    return write_config(tmp_path / 'config.py', cityscapes)
