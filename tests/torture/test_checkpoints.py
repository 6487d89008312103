"""Checkpoints through bit flips, full disks and kills at every step."""

import errno
import itertools
import os
import random
import shutil
import signal

import pytest
import torch

from mmseg_margin.checkpoints import (
    AtomicBackend,
    CheckpointError,
    newest_whole_checkpoint,
)
from tests.processes import FORK
from tests.small_training import (
    PLAIN,
    keep_last_and_best,
    train,
    training_config,
)
from tests.stats.builders import write_set
from tests.test_checkpoints import load

FLIPS = int(os.environ.get('MMSEG_MARGIN_FLIPS', '100'))
STOPS = int(os.environ.get('MMSEG_MARGIN_STOPS', '4'))
# Writing a draft, giving it its name, and removing an old file.
STEPS = ((os, 'fsync'), (os, 'replace'), (AtomicBackend, 'remove'))


def same(a, b):
    """Whether the content of two checkpoints is bit-identical."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def test_flipped_bits_never_become_weights(tmp_path, record_property):
    path = tmp_path / 'iter_1.pth'
    weights = {'w': torch.randn(7, 99), 'b': torch.arange(5)}
    torch.save({'state_dict': weights, 'meta': {'iter': 1}}, path)
    good, right = path.read_bytes(), load(path)
    rng = random.Random(0)
    refused = 0
    for _ in range(FLIPS):
        bad = bytearray(good)
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        path.write_bytes(bad)
        try:
            assert same(load(path), right)
        except CheckpointError as error:
            refused += '\n' not in str(error)
    assert refused > FLIPS / 2  # the rest is padding, or dates
    record_property('flipped bits in a checkpoint', FLIPS)


@pytest.fixture(scope='module')
def half_way(tmp_path_factory):
    """A training at its second checkpoint, which keeps only one."""
    folder = tmp_path_factory.mktemp('half way')
    root, work_dir = write_set(folder / 'data', 2), folder / 'w'
    config = training_config(root, work_dir, 2, PLAIN)
    keep_last_and_best(config, interval=1)
    train(config)
    shutil.copytree(work_dir, folder / 'copy')
    config.train_cfg.max_iters = 4
    return config, work_dir, folder / 'copy'


def go_on_until(config, step, stop):
    """Resume, and stop before or after a step of writing or removing."""
    moments = itertools.count()

    def stopping(function):
        def call(*args, **kwargs):
            if next(moments) == step:
                stop()
            result = function(*args, **kwargs)
            if next(moments) == step:
                stop()
            return result

        return call

    for owner, name in STEPS:
        setattr(owner, name, stopping(getattr(owner, name)))
    newest = newest_whole_checkpoint(config.work_dir)
    train(config, load_from=newest, resume=True)
    os._exit(0)


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def fill():
    raise OSError(errno.ENOSPC, 'No space left on device')


@pytest.mark.parametrize('stop', [kill, fill])
def test_there_is_always_a_checkpoint(half_way, stop, record_property):
    """The last one and the best one, whichever step is interrupted."""
    config, work_dir, copy = half_way
    stops = step = 0
    while stops < STOPS:
        shutil.rmtree(work_dir)
        shutil.copytree(copy, work_dir)
        child = FORK.Process(target=go_on_until, args=(config, step, stop))
        child.start()
        child.join(120)
        newest = newest_whole_checkpoint(str(work_dir))
        assert load(newest)['meta']['iter'] >= 2
        assert list(work_dir.glob('best_*.pth'))
        for path in work_dir.glob('*.pth'):
            load(path)
        stops += child.exitcode != 0
        step = 0 if child.exitcode == 0 else step + 1
    record_property(f'{stop.__name__}s while checkpoints come and go', stops)
