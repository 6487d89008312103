"""The new checkpoint, against what stock mmseg measures."""

import json

import pytest
import torch
from mmengine.runner import Runner

from mmseg_margin.errors import SettingError
from mmseg_margin.offsets import fit_checkpoint, fitted_offsets_of
from tests.offsets.builders import BIAS, DISTURBANCE, make_world


def fit_and_test(world, folder):
    """Fit, and measure both checkpoints with nothing of this package."""
    runner, target = world.runner(folder / 'work_dir'), folder / 'offsets.pth'
    result = fit_checkpoint(runner, str(world.checkpoint), target)
    assert result.gain > 1
    for path, scores in (
        (world.checkpoint, result.before),
        (target, result.after),
    ):
        cfg = world.load(folder / path.stem, load_from=str(path))
        cfg.custom_imports = None
        measured = Runner.from_cfg(cfg).test()
        assert measured['mIoU'] == pytest.approx(scores.mean, abs=0.01)
        assert measured['aAcc'] == pytest.approx(scores.accuracy, abs=0.01)
    new, old = (
        torch.load(path, weights_only=False)
        for path in (target, world.checkpoint)
    )
    changes = {
        key: weight - old['state_dict'][key]
        for key, weight in new['state_dict'].items()
    }
    assert [key for key in changes if changes[key].any()] == [BIAS]
    assert new['meta'].keys() - old['meta'].keys() == {'fitted_offsets'}
    assert fitted_offsets_of(old) is None
    record = fitted_offsets_of(new)
    written = json.loads(target.with_suffix('.json').read_text())
    assert written == {'checkpoint': str(world.checkpoint), **record}
    assert target.with_suffix('.png').read_bytes()[1:4] == b'PNG'
    assert f'{result.after.mean:.2f}' in result.summary()
    return torch.tensor(record['offsets']), changes[BIAS]


def test_the_disturbance_is_undone_by_the_bias_alone(world, tmp_path):
    offsets, change = fit_and_test(world, tmp_path)
    torch.testing.assert_close(change, offsets)
    error = offsets + DISTURBANCE
    assert (error - error.mean()).abs().max() < 0.8


def test_a_binary_head_gets_one_offset(tmp_path):
    world = make_world(tmp_path, is_binary=True)
    offsets, change = fit_and_test(world, tmp_path)
    torch.testing.assert_close(change, offsets[1:] - offsets[:1])


@pytest.mark.parametrize('name', ['a.pth', 'a.json', 'a.png'])
def test_existing_files_are_not_replaced(world, tmp_path, name):
    runner = world.runner(tmp_path / 'work_dir')
    arguments = runner, str(world.checkpoint), tmp_path / 'a.pth'
    (tmp_path / name).write_text('mine')
    with pytest.raises(SettingError, match=name):
        fit_checkpoint(*arguments)
    assert (tmp_path / name).read_text() == 'mine'
    if name == 'a.json':
        fit_checkpoint(*arguments, force=True)
        assert 'offsets' in json.loads((tmp_path / name).read_text())


def test_a_file_without_the_weights_is_refused(world, tmp_path):
    torch.save({'weight': 1}, tmp_path / 'other.pth')
    runner = world.runner(tmp_path / 'work_dir')
    with pytest.raises(SettingError, match='not belong'):
        fit_checkpoint(runner, str(tmp_path / 'other.pth'))
