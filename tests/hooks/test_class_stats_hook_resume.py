"""ClassStatsHook in a second, a resumed and a fine-tuned training."""

import numpy as np
import pytest
import torch
from mmseg.datasets.transforms import LoadAnnotations
from mmseg.registry import TRANSFORMS

from mmseg_margin.errors import DataSetError
from mmseg_margin.stats import stats_of_checkpoint
from tests.hooks.builders import log_of, losses, make_runner
from tests.stats.builders import (
    count_pixel_by_pixel,
    encode,
    open_set,
    write_label_file,
    write_set,
)

AGAIN = {'max_iters': 5, 'resume': True}


@TRANSFORMS.register_module()
class CustomLoader(LoadAnnotations):
    """A subclass of a user."""


def train(*args, **settings):
    runner = make_runner(*args, **settings)
    runner.train()
    return runner


def test_nothing_is_scanned_again(root, tmp_path, counts, labels_read):
    validation = write_set(tmp_path / 'val', 3)
    train(root, tmp_path / 'w', validation=validation)
    assert len(labels_read) == 8
    labels_read.clear()
    checkpoint = torch.load(tmp_path / 'w/iter_2.pth', weights_only=False)
    stats = stats_of_checkpoint(checkpoint['meta'])
    assert stats.counts == counts
    assert not any('loss' in key for key in checkpoint['state_dict'])
    # In the last one no iteration is left to do.
    for _ in range(2):
        runner = train(root, tmp_path / 'w', validation=validation, **AGAIN)
        assert labels_read == []
        assert losses(runner.model)[0].counts == counts


@pytest.mark.parametrize('loader', ['LoadAnnotations', 'CustomLoader'])
def test_resume_with_other_data_scans_again(root, tmp_path, counts, loader):
    """Also if a custom transform reads it, whose files are unknown."""
    train(root, tmp_path / 'w', loader=loader)
    write_label_file(root, 0, np.ones((32, 48), np.uint8))
    runner = train(root, tmp_path / 'w', loader=loader, **AGAIN)
    found = losses(runner.model)[0].counts
    assert found != counts
    assert found == count_pixel_by_pixel([open_set(root)], 4)[0]


def test_resume_repeats_the_problems(root, tmp_path):
    """Those of a training that went on with a warning."""
    label = root / 'ann' / '0000.png'
    label.write_bytes(encode(np.zeros((32, 48), np.uint8), 'JPEG'))
    for resume in ({}, AGAIN):
        hook = {'on_problem': 'warn'}
        runner = train(root, tmp_path / 'w', hook=hook, **resume)
        assert 'ann/0000.png' in log_of(runner)
    with pytest.raises(DataSetError, match='JPEG'):
        train(root, tmp_path / 'w', max_iters=8, resume=True)


def test_fine_tuning_counts_its_own_data(root, tmp_path, counts):
    other = write_set(tmp_path / 'other', 3, values=(0, 1, 2, 3))
    train(other, tmp_path / 'a')
    weights = str(tmp_path / 'a/iter_2.pth')
    runner = train(root, tmp_path / 'b', load_from=weights)
    assert losses(runner.model)[0].counts == counts


def test_damaged_statistics_of_a_checkpoint_are_not_used():
    assert stats_of_checkpoint({}) is None
    assert stats_of_checkpoint({'class_stats': {'counts': [1]}}) is None
