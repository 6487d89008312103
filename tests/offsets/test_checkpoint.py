"""The new checkpoint, against what stock mmseg measures."""

import json

import numpy as np
import pytest
import torch
from mmengine.runner import Runner
from mmseg.apis import inference_model, init_model

from mmseg_margin.errors import SettingError
from mmseg_margin.offsets import fit_checkpoint, fitted_offsets_of
from mmseg_margin.offsets.checkpoint import load_weights
from tests.offsets.builders import DISTURBANCE, make_world


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


def changed_weights(world, target) -> dict[str, torch.Tensor]:
    new, old = (
        torch.load(path, weights_only=False)['state_dict']
        for path in (target, world.checkpoint)
    )
    assert new.keys() == old.keys()
    changes = {key: new[key] - old[key] for key in new}
    return {key: change for key, change in changes.items() if change.any()}


def test_the_disturbance_is_undone(fitted):
    result, _ = fitted
    assert result.gain > 1
    assert result.is_better
    assert (result.split, result.num_images) == ('train', 16)
    assert result.absent == []
    error = torch.tensor(result.offsets) + DISTURBANCE
    assert (error - error.mean()).abs().max() < 0.8


def test_stock_mmseg_measures_what_was_printed(world, fitted, tmp_path):
    result, target = fitted
    for checkpoint, scores in (
        (world.checkpoint, result.before),
        (target, result.after),
    ):
        name = checkpoint.stem
        measured = stock_test(world, checkpoint, tmp_path / name)
        assert measured['mIoU'] == pytest.approx(scores.mean, abs=0.01)
        assert measured['aAcc'] == pytest.approx(scores.accuracy, abs=0.01)
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
    assert changed_weights(world, target).keys() == {world.bias}
    written = json.loads(target.with_suffix('.json').read_text())
    assert written == {'checkpoint': str(world.checkpoint), **record}
    assert target.with_suffix('.png').read_bytes()[1:4] == b'PNG'


@pytest.mark.parametrize('head', ['binary', 'cascade'])
def test_other_heads(head, tmp_path):
    """A binary head gets one offset; only the last stage of a cascade any."""
    world = make_world(tmp_path, head)
    target = tmp_path / 'offsets.pth'
    runner = world.runner(tmp_path / 'runner')
    result = fit_checkpoint(runner, str(world.checkpoint), target)
    assert result.gain > 1
    measured = stock_test(world, target, tmp_path / 'tested')
    assert measured['mIoU'] == pytest.approx(result.after.mean, abs=0.01)
    expected = result.offsets
    if head == 'binary':
        expected = [expected[1] - expected[0]]
    ((name, change),) = changed_weights(world, target).items()
    assert name == world.bias
    assert change.tolist() == pytest.approx(expected, abs=1e-6)


def test_a_file_without_the_weights_is_refused(world, tmp_path):
    torch.save({'weight': 1}, tmp_path / 'other.pth')
    runner = world.runner(tmp_path / 'work_dir')
    with pytest.raises(SettingError, match='not belong'):
        load_weights(runner, str(tmp_path / 'other.pth'))
