"""What checkpoint and cache save ClassStatsHook from counting again."""

import numpy as np
import pytest
import torch

from mmseg_margin.functional import margin_offsets
from mmseg_margin.losses import MarginCalibrationLoss
from mmseg_margin.stats import ClassStats
from tests.hooks.builders import log_of, losses, make_runner
from tests.stats.builders import write_label_file, write_set

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
    state = {'decode_head.loss_decode': {'steps': [2.0]}}
    assert checkpoint['meta']['margin_state'] == state
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


def test_resume_takes_counts_and_state_from_the_checkpoint(
    root, trained, counts, labels_read
):
    _, loss = resume(root, trained, NO_CACHE)
    assert labels_read == []
    assert loss.counts == counts
    assert loss.steps == 5


def test_resume_with_other_data_scans_again(
    root, trained, counts, labels_read
):
    write_label_file(root, 0, np.ones((32, 48), np.uint8))
    runner, loss = resume(root, trained)
    assert len(labels_read) == 5
    assert loss.counts != counts
    assert 'differs from that of the checkpoint' in log_of(runner)


def test_resume_with_damaged_statistics_scans_again(root, trained, counts):
    """And the state of a loss that is not there is left alone."""
    checkpoint = load(trained)
    checkpoint['meta']['class_stats']['counts'][0] = -1
    checkpoint['meta']['margin_state'] = {'other.loss': {'steps': [9.0]}}
    torch.save(checkpoint, trained)
    runner, loss = resume(root, trained, NO_CACHE)
    assert loss.counts == counts
    assert loss.steps == 3
    assert 'counts[0] must not be negative' in log_of(runner)


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
        assert loss.steps == 2  # a new training, so its state begins anew


def test_margin_loss_and_its_running_rates(root, tmp_path, counts):
    kind = MarginCalibrationLoss
    loss = {'type': kind, 'form': 'jaccard', 'backend': 'eager'}
    runner = make_runner(root, tmp_path / 'w', loss)
    runner.train()
    (trained,) = losses(runner.model, kind)
    rho_0k, rho_k0 = margin_offsets(counts)
    np.testing.assert_allclose(trained.rho_0k, rho_0k, rtol=1e-6)
    np.testing.assert_allclose(trained.rho_k0, rho_k0, rtol=1e-6)
    runner = make_runner(root, tmp_path / 'w', loss, resume=True)
    runner.train()  # there is no iteration left to do
    (resumed,) = losses(runner.model, kind)
    assert resumed.training_state() == trained.training_state()
    np.testing.assert_array_equal(resumed.rho_0k, trained.rho_0k)
