"""ClassStatsHook inside a real Runner on one process."""

import re

import numpy as np
import pytest
import torch
from mmseg.datasets.transforms import LoadAnnotations
from mmseg.registry import TRANSFORMS
from torch import nn

from mmseg_margin.errors import DataSetError
from mmseg_margin.functional import OffsetSettings, margin_offsets
from mmseg_margin.hooks import ClassStatsHook
from mmseg_margin.hooks.class_stats_hook import give_stats, offset_settings_of
from mmseg_margin.stats import ClassStats, stats_of_checkpoint
from tests.hooks.builders import (
    COUNTING,
    CountingLoss,
    Wrapper,
    head,
    log_of,
    losses,
    make_runner,
)
from tests.stats.builders import (
    count_pixel_by_pixel,
    open_set,
    write_label_file,
    write_set,
)

CE = {'type': 'CrossEntropyLoss'}
MARGIN = {'type': 'MarginCalibrationLoss', 'backend': 'eager'}
AGAIN = {'max_iters': 5, 'resume': True}


def train(*args, **settings):
    runner = make_runner(*args, **settings)
    runner.train()
    return runner


def test_every_loss_gets_the_counts(root, tmp_path, counts, labels_read):
    both = [COUNTING, {**CE, 'loss_weight': 0.1}]
    second = head(COUNTING, type='OCRHead', ocr_channels=4)
    del second['num_convs'], second['concat_input']
    cascade = {
        'type': 'CascadeEncoderDecoder',
        'num_stages': 2,
        'decode_head': [head(both), second],
        'auxiliary_head': [head(both), head(COUNTING)],
    }
    runner = train(root, tmp_path / 'w', model=cascade)
    found = losses(runner.model)
    assert [loss.counts for loss in found] == [counts] * 4
    assert [loss.steps for loss in found] == [2] * 4
    assert len(labels_read) == 5


def test_one_table_with_the_margins_of_the_loss(root, tmp_path, counts):
    log = log_of(train(root, tmp_path / 'w'))
    assert log.count('rho_0k') == 1
    assert 'tau=5, upsilon=2' in log
    rho_0k, rho_k0 = margin_offsets(counts, tau=5.0, upsilon=2.0)
    percent = 100 * counts[3] / sum(counts)
    (row,) = (line for line in log.splitlines() if '| car ' in line)
    assert [cell.strip() for cell in row.split('|')[2:-1]] == [
        *(f'{counts[3]:,}', f'{percent:.4f}', '5'),
        *(f'{rho_0k[3]:.4g}', f'{rho_k0[3]:.4g}'),
    ]


@pytest.mark.parametrize(
    ('values', 'decode_head', 'message'),
    [
        ((0, 1, 2, 3, 200), head(COUNTING), '0004.png: 200'),
        ((0, 1, 2, 3, 255), head(COUNTING, ignore_index=3), 'classes: 255'),
        ((0, 1, 3), head({**MARGIN, 'absent_class': 'error'}), 'tree'),
    ],
)
def test_bad_labels_stop_before_the_first_iteration(
    root, tmp_path, values, decode_head, message
):
    write_set(root, 5, values)
    model = {'decode_head': decode_head}
    runner = make_runner(root, tmp_path / 'w', model=model)
    with pytest.raises(ValueError, match=message):
        runner.train()
    assert runner.iter == 0
    assert not list((tmp_path / 'w').glob('*.pth'))


def test_absent_classes_have_no_offset_and_are_named(root, tmp_path):
    write_set(root, 5, values=(0, 1, 3))
    runner = train(root, tmp_path / 'w', MARGIN)
    assert runner.iter == 2
    assert 'without a pixel: tree' in log_of(runner)
    rho_0k = runner.model.decode_head.loss_decode.rho_0k
    assert [bool(rho) for rho in rho_0k] == [True, True, False, True]


def test_masks_of_0_and_255_train_with_the_line_of_the_report(root, tmp_path):
    write_set(root, 5, values=(0, 255))
    with pytest.raises(DataSetError, match='dict') as caught:
        train(root, tmp_path / 'w')
    line = re.search(r'dict\(type=.*\)', str(caught.value))[0]
    runner = train(root, tmp_path / 'v', loader=eval(line))
    first, second, *others = losses(runner.model)[0].counts
    assert min(first, second) > 0
    assert others == [0, 0]


def test_counts_of_the_config_are_not_replaced(root, tmp_path):
    """Nor are the offsets of other counts judged."""
    counts = [10**7] * 4
    write_set(root, 5, values=(0, 1, 2))
    runner = train(root, tmp_path / 'w', {**MARGIN, 'class_counts': counts})
    rho_0k = runner.model.decode_head.loss_decode.rho_0k
    np.testing.assert_allclose(rho_0k, margin_offsets(counts).rho_0k, 1e-6)
    assert 'share %' in log_of(runner)
    assert 'rho_0k' not in log_of(runner)


def test_bad_labels_of_the_validation_set(root, tmp_path, counts):
    validation = write_set(tmp_path / 'val', 3)
    write_label_file(validation, 1, np.full((32, 48), 77, np.uint8))
    places = {'root': root, 'validation': validation}
    with pytest.raises(DataSetError, match=r'val/ann/0001\.png: 77'):
        train(work_dir=tmp_path / 'w', **places)
    hook = {'on_problem': 'warn'}
    runner = train(work_dir=tmp_path / 'v', hook=hook, **places)
    assert 'validation set: label values outside' in log_of(runner)
    assert losses(runner.model)[0].counts == counts
    with pytest.raises(ValueError, match='on_problem'):
        ClassStatsHook(on_problem='log')


@pytest.mark.parametrize('compiled', [False, True])
def test_losses_are_found_under_any_wrapper(compiled):
    loss = CountingLoss()
    inner = torch.compile(loss, backend='eager') if compiled else loss
    model = Wrapper(Wrapper(nn.ModuleDict({'head': inner})))
    give_stats(model, ClassStats(['a', 'b'], [30, 70], [3, 4], [60, 90]))
    assert loss.counts == [30, 70]
    assert offset_settings_of(model) == OffsetSettings(5.0, 2.0)


def test_nothing_is_scanned_again(root, tmp_path, counts, labels_read):
    validation = write_set(tmp_path / 'val', 3)
    train(root, tmp_path / 'w', validation=validation)
    assert len(labels_read) == 8
    labels_read.clear()
    checkpoint = torch.load(tmp_path / 'w/iter_2.pth', weights_only=False)
    assert stats_of_checkpoint(checkpoint['meta']).counts == counts
    assert stats_of_checkpoint({'class_stats': {'counts': [1]}}) is None
    assert not any('loss' in key for key in checkpoint['state_dict'])
    runner = train(root, tmp_path / 'w', validation=validation, **AGAIN)
    assert labels_read == []
    assert losses(runner.model)[0].counts == counts


@TRANSFORMS.register_module()
class CustomLoader(LoadAnnotations):
    """A subclass of a user."""


@pytest.mark.parametrize('loader', ['LoadAnnotations', 'CustomLoader'])
def test_resume_with_other_data_scans_again(root, tmp_path, counts, loader):
    """Also if a custom transform reads it, whose files are unknown."""
    train(root, tmp_path / 'w', loader=loader)
    write_label_file(root, 0, np.ones((32, 48), np.uint8))
    runner = train(root, tmp_path / 'w', loader=loader, **AGAIN)
    found = losses(runner.model)[0].counts
    assert found != counts
    assert found == count_pixel_by_pixel([open_set(root)], 4)[0]
