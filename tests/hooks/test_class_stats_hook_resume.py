"""ClassStatsHook takes statistics from the checkpoint and the cache."""

import numpy as np
import pytest
import torch

from mmseg_margin.errors import DataSetError
from mmseg_margin.functional import margin_offsets
from mmseg_margin.losses import MarginCalibrationLoss
from mmseg_margin.stats import ClassStats
from tests.hooks.builders import log_of, losses, make_runner
from tests.stats.builders import encode, write_label_file, write_set

NO_CACHE = {'use_cache': False}


@pytest.fixture
def trained(root, tmp_path, labels_read):
    """The checkpoint of a training in the folder ``w``."""
    make_runner(root, tmp_path / 'w').train()
    labels_read.clear()
    return tmp_path / 'w' / 'iter_2.pth'


def load(path):
    return torch.load(path, weights_only=False)


def test_statistics_are_in_the_checkpoint(trained, counts):
    checkpoint = load(trained)
    stats = ClassStats.from_dict(checkpoint['meta']['class_stats'])
    assert stats.counts == counts
    assert stats.provenance.files == 5
    assert not any('loss' in key for key in checkpoint['state_dict'])


def test_second_run_takes_the_cache(
    root, trained, tmp_path, counts, labels_read
):
    hook = {'cache_dir': str(tmp_path / 'w' / 'cache')}
    runner = make_runner(root, tmp_path / 'b', hook=hook)
    runner.train()
    assert labels_read == []
    assert losses(runner.model)[0].counts == counts
    assert log_of(runner).count('rho_0k') == 1


def resume(root, trained, hook=None):
    runner = make_runner(
        root, trained.parent, hook=hook, max_iters=5, resume=True
    )
    runner.train()
    return runner, *losses(runner.model)


def test_resume_takes_the_counts_from_the_checkpoint(
    root, trained, counts, labels_read
):
    _, loss = resume(root, trained, NO_CACHE)
    assert labels_read == []
    assert loss.counts == counts


def test_resume_with_other_data_scans_again(
    root, trained, counts, labels_read
):
    write_label_file(root, 0, np.ones((32, 48), np.uint8))
    runner, loss = resume(root, trained)
    assert len(labels_read) == 5
    assert loss.counts != counts
    assert 'differs from that of the checkpoint' in log_of(runner)


def test_resume_with_damaged_statistics_scans_again(root, trained, counts):
    checkpoint = load(trained)
    checkpoint['meta']['class_stats']['counts'][0] = -1
    torch.save(checkpoint, trained)
    runner, loss = resume(root, trained, NO_CACHE)
    assert loss.counts == counts
    assert 'counts[0] must not be negative' in log_of(runner)


def test_resume_repeats_the_problems(root, tmp_path):
    """Those of a training that went on with a warning."""
    label = root / 'ann' / '0000.png'
    label.write_bytes(encode(np.zeros((32, 48), np.uint8), 'JPEG'))
    warn = {'on_problem': 'warn'}
    make_runner(root, tmp_path / 'w', hook=warn).train()
    again = {'max_iters': 5, 'resume': True}
    runner = make_runner(root, tmp_path / 'w', hook=warn, **again)
    runner.train()
    assert 'ann/0000.png' in log_of(runner)
    with pytest.raises(DataSetError, match=r'JPEG(?s:.)*0000.png'):
        make_runner(root, tmp_path / 'w', **again | {'max_iters': 8}).train()


def test_resume_scans_no_validation_label(root, tmp_path, labels_read):
    validation = write_set(tmp_path / 'val', 3)
    settings = {'hook': NO_CACHE, 'validation': validation}
    make_runner(root, tmp_path / 'w', **settings).train()
    assert len(labels_read) == 8
    again = {'max_iters': 3, 'resume': True}
    make_runner(root, tmp_path / 'w', **settings, **again).train()
    assert len(labels_read) == 8


def test_fine_tuning_counts_its_own_data(root, tmp_path, counts):
    """From a checkpoint of ours, and from that of another program."""
    other = write_set(tmp_path / 'other', 3, values=(0, 1, 2, 3))
    first = make_runner(other, tmp_path / 'a')
    first.train()
    torch.save(first.model.state_dict(), tmp_path / 'a' / 'weights.pth')
    for name in ('iter_2.pth', 'weights.pth'):
        weights = str(tmp_path / 'a' / name)
        runner = make_runner(root, tmp_path / name, load_from=weights)
        runner.train()
        (loss,) = losses(runner.model)
        assert loss.counts == counts


def test_resumed_offsets_are_the_same(root, tmp_path, counts):
    kind = MarginCalibrationLoss
    loss = {'type': kind, 'backend': 'eager'}
    runner = make_runner(root, tmp_path / 'w', loss)
    runner.train()
    (trained,) = losses(runner.model, kind)
    rho_0k, rho_k0 = margin_offsets(counts)
    np.testing.assert_allclose(trained.rho_0k, rho_0k, rtol=1e-6)
    np.testing.assert_allclose(trained.rho_k0, rho_k0, rtol=1e-6)
    runner = make_runner(root, tmp_path / 'w', loss, resume=True)
    runner.train()  # there is no iteration left to do
    (resumed,) = losses(runner.model, kind)
    np.testing.assert_array_equal(resumed.rho_0k, trained.rho_0k)
