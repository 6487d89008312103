"""The fit on a real Runner."""

import pytest
import torch

from mmseg_margin.errors import DataSetError, SettingError
from mmseg_margin.offsets import FitSettings, fit_runner
from tests.offsets.builders import write_images

WINDOWS = {'mode': 'slide', 'crop_size': (16, 24), 'stride': (8, 12)}
SMALLER = {'type': 'Resize', 'scale': (24, 16)}
TRAIN = FitSettings()


def test_the_model_stays_as_it_is(world, tmp_path):
    runner = world.runner(tmp_path / 'work_dir')
    runner.model.train()
    before = {k: v.clone() for k, v in runner.model.state_dict().items()}
    fit_runner(runner, FitSettings(num_images=4))
    assert runner.model.training
    after = runner.model.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_sliding_windows_and_dice(world, tmp_path):
    settings = {'model.test_cfg': WINDOWS}
    runner = world.runner(tmp_path / 'work_dir', **settings)
    result = fit_runner(runner, FitSettings(metric='mDice'))
    assert result.gain > 1
    assert 'Dice before' in result.table()


def test_a_validation_in_half_precision(world, tmp_path):
    settings = {'val_cfg.fp16': True}
    result = fit_runner(world.runner(tmp_path / 'half', **settings), TRAIN)
    expected = fit_runner(world.runner(tmp_path / 'single'), TRAIN)
    assert result.gain == pytest.approx(expected.gain, abs=2)


def test_the_gain_on_the_split_of_the_fit_is_cross_validated(world, tmp_path):
    runner = world.runner(tmp_path / 'work_dir')
    result = fit_runner(runner, FitSettings(split='val'))
    assert result.gain > 1
    assert result.num_images == 8
    assert 'cross-validated' in result.summary()
    with pytest.raises(DataSetError, match='more images'):
        fit_runner(runner, FitSettings(split='val', num_images=1))


def test_absent_classes_are_named(world, tmp_path):
    root = write_images(tmp_path / 'data', values=(0, 1, 2, 255))
    settings = {'train_dataloader.dataset.data_root': str(root / 'train')}
    result = fit_runner(world.runner(tmp_path / 'work_dir', **settings), TRAIN)
    assert result.absent == ['car']
    assert result.offsets[3] == 0
    assert 'with offset 0: car.' in result.summary()


@pytest.mark.parametrize('place', ['val_evaluator', 'val_dataloader.dataset'])
def test_the_ignored_label_is_that_of_the_validation(world, tmp_path, place):
    """A label as large as the number of classes is void only if it says so."""
    root = write_images(tmp_path / 'data', (0, 1, 2, 3, 4))
    roots = {
        f'{split}_dataloader.dataset.data_root': str(root / split)
        for split in ('train', 'val')
    }
    with pytest.raises(DataSetError, match='label 4'):
        fit_runner(world.runner(tmp_path / 'a', **roots), TRAIN)
    settings = {**roots, f'{place}.ignore_index': 4}
    result = fit_runner(world.runner(tmp_path / 'b', **settings), TRAIN)
    expected = fit_runner(world.runner(tmp_path / 'c'), TRAIN)
    assert result.gain == pytest.approx(expected.gain, abs=10)


def remove_labels(runner, folder):
    del runner.cfg.val_dataloader.dataset.pipeline[1]


def resize_images(runner, folder):
    runner.cfg.val_dataloader.dataset.pipeline.insert(2, SMALLER)


def ignore_all(runner, folder, split='train'):
    dataset = runner.cfg[f'{split}_dataloader'].dataset
    dataset.data_root = str(write_images(folder, (255,)) / split)


def ignore_all_to_measure(runner, folder):
    ignore_all(runner, folder, 'val')


def break_weights(runner, folder):
    runner.model.decode_head.conv_seg.bias.data[0] = torch.nan


@pytest.mark.parametrize(
    ('change', 'error', 'said'),
    [
        (remove_labels, DataSetError, 'without labels'),
        (resize_images, SettingError, 'after Resize'),
        (ignore_all, DataSetError, 'no labelled pixel'),
        (ignore_all_to_measure, DataSetError, 'validation split'),
        (break_weights, DataSetError, 'NaN'),
    ],
)
def test_bad_data_in_a_sentence(world, tmp_path, change, error, said):
    runner = world.runner(tmp_path / 'work_dir')
    change(runner, tmp_path / 'data')
    with pytest.raises(error, match=said):
        fit_runner(runner, TRAIN)


@pytest.mark.parametrize(
    ('settings', 'said'),
    [
        ({'split': 'test'}, 'train or val'),
        ({'num_images': 0}, '1 or more'),
        ({'metric': 'aAcc'}, 'mIoU or mDice'),
    ],
)
def test_bad_settings_in_a_sentence(settings, said):
    with pytest.raises(SettingError, match=said):
        FitSettings(**settings)
