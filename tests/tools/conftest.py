"""A fake Cityscapes and an untrained model for tools that predict."""

import pytest

from tests.evaluation.fakes import (
    make_benchmark,
    write_checkpoint,
    write_config,
)


@pytest.fixture(scope='session')
def world(tmp_path_factory):
    """Data with many test images, a config and a checkpoint."""
    folder = tmp_path_factory.mktemp('world')
    root = make_benchmark(folder / 'cityscapes', [(61, 33)] * 60)
    config = write_config(folder / 'config.py', root)
    return root, config, write_checkpoint(config, folder / 'model.pth')
