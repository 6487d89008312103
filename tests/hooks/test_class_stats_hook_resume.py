"""ClassStatsHook takes statistics from the checkpoint and the cache."""

import numpy as np
import pytest
import torch
from mmseg.datasets.transforms import LoadAnnotations
from mmseg.registry import TRANSFORMS

from mmseg_margin.errors import DataSetError
from mmseg_margin.functional import margin_offsets
from mmseg_margin.losses import MarginCalibrationLoss
from mmseg_margin.stats import ClassStats
from tests.hooks.builders import log_of, losses, make_runner
from tests.stats.builders import (
    count_pixel_by_pixel,
    encode,
    open_set,
    write_label_file,
    write_set,
)


@TRANSFORMS.register_module()
class CustomLoader(LoadAnnotations):
    """A subclass of a user."""


NO_CACHE = {'use_cache': False}
AGAIN = {'max_iters': 5, 'resume': True}


def train(*args, **settings):
    runner = make_runner(*args, **settings)
    runner.train()
    return runner


@pytest.fixture
def trained(root, tmp_path):
    """The checkpoint of a training in the folder ``w``."""
    train(root, tmp_path / 'w')
    return tmp_path / 'w' / 'iter_2.pth'


def load(path):
    return torch.load(path, weights_only=False)


def test_nothing_is_scanned_again(root, tmp_path, counts, labels_read):
    """The cache serves a second training, the checkpoint a resumed one."""
    settings = {
        'loss': {'type': MarginCalibrationLoss, 'backend': 'eager'},
        'validation': write_set(tmp_path / 'val', 3),
    }
    train(root, tmp_path / 'w', **settings)
    assert len(labels_read) == 8
    labels_read.clear()
    checkpoint = load(tmp_path / 'w' / 'iter_2.pth')
    stats = ClassStats.from_dict(checkpoint['meta']['class_stats'])
    assert stats.counts == counts
    assert stats.files == 5
    assert not any('loss' in key for key in checkpoint['state_dict'])
    cache = {'cache_dir': str(tmp_path / 'w' / 'cache')}
    for runner in (
        train(root, tmp_path / 'b', hook=cache, **settings),
        train(root, tmp_path / 'w', hook=NO_CACHE, **settings, **AGAIN),
        # No iteration is left to do.
        train(root, tmp_path / 'w', hook=NO_CACHE, **settings, **AGAIN),
    ):
        assert labels_read == []
        # Two trainings within a second share a log file.
        assert 'rho_0k' in log_of(runner)
        (loss,) = losses(runner.model, MarginCalibrationLoss)
        offsets = np.stack([loss.rho_0k, loss.rho_k0])
        np.testing.assert_allclose(offsets, margin_offsets(counts), rtol=1e-6)


@pytest.mark.parametrize('loader', ['LoadAnnotations', 'CustomLoader'])
def test_resume_with_other_data_scans_again(root, tmp_path, counts, loader):
    """Also if a custom transform reads it, whose files are unknown."""
    train(root, tmp_path / 'w', loader=loader)
    write_label_file(root, 0, np.ones((32, 48), np.uint8))
    runner = train(root, tmp_path / 'w', loader=loader, **AGAIN)
    found = losses(runner.model)[0].counts
    assert found != counts
    assert found == count_pixel_by_pixel([open_set(root)], 4)[0]


def test_resume_with_damaged_statistics_scans_again(root, trained, counts):
    checkpoint = load(trained)
    checkpoint['meta']['class_stats']['counts'][0] = -1
    torch.save(checkpoint, trained)
    runner = train(root, trained.parent, hook=NO_CACHE, **AGAIN)
    assert losses(runner.model)[0].counts == counts
    assert 'of the checkpoint are not used' in log_of(runner)


def test_resume_repeats_the_problems(root, tmp_path):
    """Those of a training that went on with a warning."""
    label = root / 'ann' / '0000.png'
    label.write_bytes(encode(np.zeros((32, 48), np.uint8), 'JPEG'))
    for resume in ({}, AGAIN):
        hook = {'on_problem': 'warn'}
        runner = train(root, tmp_path / 'w', hook=hook, **resume)
        assert 'ann/0000.png' in log_of(runner)
    with pytest.raises(DataSetError, match=r'JPEG(?s:.)*0000.png'):
        train(root, tmp_path / 'w', max_iters=8, resume=True)


def test_fine_tuning_counts_its_own_data(root, tmp_path, counts):
    """From a checkpoint of ours, and from that of another program."""
    other = write_set(tmp_path / 'other', 3, values=(0, 1, 2, 3))
    first = train(other, tmp_path / 'a')
    torch.save(first.model.state_dict(), tmp_path / 'a' / 'weights.pth')
    for name in ('iter_2.pth', 'weights.pth'):
        weights = str(tmp_path / 'a' / name)
        runner = train(root, tmp_path / name, load_from=weights)
        assert losses(runner.model)[0].counts == counts
