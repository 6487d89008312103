"""The fit on a real Runner, against what stock mmseg measures."""

import json

import numpy as np
import pytest
import torch
from mmengine.runner import Runner
from mmseg.apis import MMSegInferencer, inference_model, init_model

from mmseg_margin.errors import DataSetError, SettingError
from mmseg_margin.offsets import (
    fit_checkpoint,
    fit_runner,
    fitted_offsets_of,
)
from tests.offsets.builders import (
    BIAS,
    DISTURBANCE,
    make_world,
    write_images,
)
from tests.processes import run_ranks


@pytest.fixture(scope='module')
def fitted(world, tmp_path_factory):
    """The result, and the checkpoint with the offsets."""
    folder = tmp_path_factory.mktemp('fitted')
    runner = world.runner(folder / 'work_dir')
    target = folder / 'offsets.pth'
    return fit_checkpoint(runner, str(world.checkpoint), target), target


def stock_test(world, checkpoint, work_dir) -> dict[str, float]:
    """Upstream's own flow, without anything of this package."""
    cfg = world.load(work_dir, load_from=str(checkpoint))
    cfg.custom_imports = None
    return Runner.from_cfg(cfg).test()


def relative(offsets):
    offsets = torch.as_tensor(offsets)
    return offsets - offsets.mean()


def test_the_disturbance_is_undone(fitted):
    result, _ = fitted
    assert result.gain > 1
    assert result.is_better
    assert (result.split, result.num_images, result.absent) == (
        'train',
        16,
        [],
    )
    error = relative(result.offsets) + relative(DISTURBANCE)
    assert error.abs().max() < 0.8


def test_stock_mmseg_measures_what_was_printed(world, fitted, tmp_path):
    result, target = fitted
    for checkpoint, figures in (
        (world.checkpoint, result.before),
        (target, result.after),
    ):
        name = checkpoint.stem
        measured = stock_test(world, checkpoint, tmp_path / name)
        assert measured['mIoU'] == pytest.approx(figures.mean, abs=0.01)
        assert measured['aAcc'] == pytest.approx(figures.accuracy, abs=0.01)
    assert f'{result.after.mean:.2f}' in result.summary()


def test_the_scores_differ_by_the_offsets_alone(world, fitted):
    result, target = fitted
    image = np.random.default_rng(0).integers(0, 256, (40, 56, 3), np.uint8)
    scores = []
    for path in (world.checkpoint, target):
        model = init_model(str(world.config), str(path), device='cpu')
        scores.append(inference_model(model, image).seg_logits.data)
    offsets = torch.tensor(result.offsets)[:, None, None]
    torch.testing.assert_close(scores[1], scores[0] + offsets)
    inferencer = MMSegInferencer(str(world.config), str(target))
    predicted = inferencer(image, return_datasamples=True).pred_sem_seg.data
    assert torch.equal(predicted[0], scores[1].argmax(0))


def test_the_files_tell_what_was_done(world, fitted):
    result, target = fitted
    new, old = (
        torch.load(path, weights_only=False)
        for path in (target, world.checkpoint)
    )
    record = fitted_offsets_of(new)
    assert record['offsets'] == result.offsets
    assert fitted_offsets_of(old) is None
    assert new['meta'].keys() - old['meta'].keys() == {'fitted_offsets'}
    changed = [
        key
        for key, value in old['state_dict'].items()
        if not torch.equal(value, new['state_dict'][key])
    ]
    assert changed == [BIAS]
    written = json.loads(target.with_suffix('.json').read_text())
    assert written == {'checkpoint': str(world.checkpoint), **record}
    assert target.with_suffix('.png').read_bytes()[1:4] == b'PNG'


def test_the_model_stays_as_it_is(world, tmp_path):
    runner = world.runner(tmp_path / 'work_dir')
    runner.model.train()
    before = {k: v.clone() for k, v in runner.model.state_dict().items()}
    fit_runner(runner, num_images=4)
    assert runner.model.training
    after = runner.model.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_sliding_windows_and_dice(world, tmp_path):
    cfg = {
        'model.test_cfg': {
            'mode': 'slide',
            'crop_size': (16, 24),
            'stride': (8, 12),
        }
    }
    runner = world.runner(tmp_path / 'work_dir', **cfg)
    result = fit_runner(runner, metric='mDice')
    assert result.gain > 1
    assert 'Dice before' in result.table()


def test_the_gain_on_the_split_of_the_fit_is_cross_validated(world, tmp_path):
    result = fit_runner(world.runner(tmp_path / 'work_dir'), split='val')
    assert result.gain > 1
    assert result.num_images == 8
    assert 'cross-validated' in result.summary()


def fit_on_rank(world, folder):
    cfg = world.load(folder / 'work_dir', launcher='pytorch')
    cfg.env_cfg = {'dist_cfg': {'backend': 'gloo'}}
    cfg.model_wrapper_cfg = {
        'type': 'MMDistributedDataParallel',
        'device_ids': None,
    }
    runner = Runner.from_cfg(cfg)
    runner.load_checkpoint(str(world.checkpoint))
    return fit_runner(runner, num_images=7).to_dict()


def test_any_number_of_ranks_fits_the_same(world, tmp_path):
    alone = fit_runner(world.runner(tmp_path / 'alone'), num_images=7)
    for result in run_ranks(
        2, fit_on_rank, tmp_path / 'ranks', world, tmp_path
    ):
        assert result == alone.to_dict()


def test_a_binary_head_gets_one_offset(tmp_path):
    world = make_world(tmp_path, binary=True)
    target = tmp_path / 'offsets.pth'
    runner = world.runner(tmp_path / 'runner')
    result = fit_checkpoint(runner, str(world.checkpoint), target)
    assert result.gain > 1
    measured = stock_test(world, target, tmp_path / 'tested')
    assert measured['mIoU'] == pytest.approx(result.after.mean, abs=0.01)
    new, old = (
        torch.load(path, weights_only=False)['state_dict'][BIAS]
        for path in (target, world.checkpoint)
    )
    first, second = result.offsets
    assert (new - old).tolist() == pytest.approx([second - first])


def test_absent_classes_are_named(world, tmp_path):
    cfg = world.load(tmp_path / 'work_dir')
    write_images(tmp_path / 'data', values=(0, 1, 2, 255))
    cfg.train_dataloader.dataset.data_root = str(tmp_path / 'data' / 'train')
    runner = Runner.from_cfg(cfg)
    runner.load_checkpoint(str(world.checkpoint))
    result = fit_runner(runner)
    assert result.absent == ['car']
    assert result.offsets[3] == 0
    assert 'with offset 0: car.' in result.summary()


def test_bad_data_in_a_sentence(world, tmp_path):
    unlabelled = world.load(tmp_path / 'unlabelled')
    del unlabelled.val_dataloader.dataset.pipeline[1]
    with pytest.raises(DataSetError, match='comes without labels'):
        fit_runner(Runner.from_cfg(unlabelled))
    small = world.load(tmp_path / 'small')
    small.val_dataloader.dataset.pipeline.insert(
        2, {'type': 'Resize', 'scale': (24, 16)}
    )
    with pytest.raises(DataSetError, match='LoadAnnotations after Resize'):
        fit_runner(Runner.from_cfg(small))
    broken = world.runner(tmp_path / 'broken')
    broken.model.decode_head.conv_seg.bias.data[0] = torch.nan
    with pytest.raises(DataSetError, match='NaN or infinite'):
        fit_runner(broken)


@pytest.mark.parametrize(
    ('settings', 'said'),
    [
        ({'split': 'test'}, 'train or val'),
        ({'num_images': 0}, '1 or more'),
        ({'metric': 'aAcc'}, 'mIoU or mDice'),
    ],
)
def test_bad_settings_in_a_sentence(world, tmp_path, settings, said):
    runner = Runner.from_cfg(world.load(tmp_path / 'work_dir'))
    with pytest.raises(SettingError, match=said):
        fit_runner(runner, **settings)
