"""The fit on a real Runner."""

import pytest
import torch

from mmseg_margin.errors import DataSetError, SettingError
from mmseg_margin.offsets import fit_runner
from tests.offsets.builders import write_images

WINDOWS = {'mode': 'slide', 'crop_size': (16, 24), 'stride': (8, 12)}
SMALLER = {'type': 'Resize', 'scale': (24, 16)}


def test_the_model_stays_as_it_is(world, tmp_path):
    runner = world.runner(tmp_path / 'work_dir')
    runner.model.train()
    before = {k: v.clone() for k, v in runner.model.state_dict().items()}
    fit_runner(runner, num_images=4)
    assert runner.model.training
    after = runner.model.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_sliding_windows_and_dice(world, tmp_path):
    settings = {'model.test_cfg': WINDOWS}
    runner = world.runner(tmp_path / 'work_dir', **settings)
    result = fit_runner(runner, metric='mDice')
    assert result.gain > 1
    assert 'Dice before' in result.table()


def test_the_gain_on_the_split_of_the_fit_is_cross_validated(world, tmp_path):
    runner = world.runner(tmp_path / 'work_dir')
    result = fit_runner(runner, split='val')
    assert result.gain > 1
    assert result.num_images == 8
    assert 'cross-validated over images of this split' in result.summary()
    assert 'nothing about images of other scenes' in result.summary()
    with pytest.raises(SettingError, match='too few images to cross-validate'):
        fit_runner(runner, split='val', num_images=1)


def test_absent_classes_are_named(world, tmp_path):
    root = write_images(tmp_path / 'data', values=(0, 1, 2, 255))
    settings = {'train_dataloader.dataset.data_root': str(root / 'train')}
    result = fit_runner(world.runner(tmp_path / 'work_dir', **settings))
    assert result.absent == ['car']
    assert result.offsets[3] == 0
    assert 'with offset 0: car.' in result.summary()


def remove_labels(runner, folder):
    del runner.cfg.val_dataloader.dataset.pipeline[1]


def remove_label_folder(runner, folder):
    del runner.cfg.train_dataloader.dataset.data_prefix['seg_map_path']


def resize_images(runner, folder):
    runner.cfg.val_dataloader.dataset.pipeline.insert(2, SMALLER)


def ignore_all(runner, folder, split='train', value=255):
    dataset = runner.cfg[f'{split}_dataloader'].dataset
    dataset.data_root = str(write_images(folder, (value,)) / split)


def ignore_all_to_measure(runner, folder):
    ignore_all(runner, folder, 'val')


def add_a_class(runner, folder):
    ignore_all(runner, folder, value=7)


def break_weights(runner, folder):
    runner.model.decode_head.conv_seg.bias.data[0] = torch.nan


@pytest.mark.parametrize(
    ('change', 'said'),
    [
        (remove_labels, 'split comes without labels'),
        (remove_label_folder, 'The train split comes without labels'),
        (resize_images, 'LoadAnnotations after Resize'),
        (ignore_all, 'no labelled pixel to fit'),
        (ignore_all_to_measure, 'No pixel of the validation split'),
        (add_a_class, 'The label 7 in .* is none of the 4 classes'),
        (break_weights, 'NaN or infinite'),
    ],
)
def test_bad_data_in_a_sentence(world, tmp_path, change, said):
    runner = world.runner(tmp_path / 'work_dir')
    change(runner, tmp_path / 'data')
    with pytest.raises(DataSetError, match=said):
        fit_runner(runner)
