"""Offsets at the end of a real training."""

import json
import shutil

import pytest
import torch
from mmengine.runner import Runner

from tests.commands import output_of
from tests.offsets.builders import BIAS, offsets_config, write_images

HOOK = {'type': 'FitOffsetsHook', 'num_images': 6, 'force': True}


@pytest.fixture
def config(tmp_path):
    root = write_images(tmp_path / 'data')
    config = offsets_config(root, tmp_path / 'work_dir', max_iters=4)
    config.custom_hooks = [HOOK]
    return config


def train(config, name):
    """Train in the same folder, as in another process."""
    config.experiment_name = f'{config.work_dir}_{name}'.replace('/', '_')
    return Runner.from_cfg(config).train()


def fitted(folder) -> set[str]:
    return {path.name for path in folder.glob('*_offsets.pth')}


def test_beside_the_last_checkpoint(config, tmp_path):
    """With EMAHook a checkpoint holds the average, which is what is fitted."""
    config.custom_hooks.insert(0, {'type': 'EMAHook'})
    model = train(config, 'train')
    folder = tmp_path / 'work_dir'
    assert (folder / 'iter_4_offsets.png').exists()
    record = json.loads((folder / 'iter_4_offsets.json').read_text())
    old, new = (
        torch.load(folder / name, weights_only=False)['state_dict']
        for name in ('iter_4.pth', 'iter_4_offsets.pth')
    )
    torch.testing.assert_close(
        new[BIAS] - old[BIAS], torch.tensor(record['offsets'])
    )
    # The model of the training is what it was.
    assert not torch.equal(model.state_dict()[BIAS], old[BIAS])
    # A finished training that is resumed is fitted again.
    config.resume = True
    train(config, 'resumed')
    assert fitted(folder) == {'iter_4_offsets.pth'}


def test_only_checkpoints_of_this_training(config, tmp_path):
    """The folder holds those of an earlier one, with a larger number."""
    folder = tmp_path / 'work_dir'
    config.custom_hooks = []
    train(config, 'earlier')
    shutil.copy(folder / 'iter_4.pth', folder / 'iter_9.pth')
    (folder / 'last_checkpoint').write_text(str(folder / 'iter_9.pth'))
    config.custom_hooks = [HOOK]
    settings = config.default_hooks.checkpoint
    settings.update(interval=-1, save_last=False)
    train(config, 'nothing')
    assert fitted(folder) == set()
    settings.update(save_best='mIoU')
    train(config, 'best')
    assert fitted(folder) == {'best_mIoU_iter_4_offsets.pth'}


def test_with_a_flag_of_the_tool(config, tmp_path, capsys):
    path = tmp_path / 'config.py'
    config.custom_hooks = []
    config.log_level = 'INFO'
    config.dump(path)
    said = output_of(capsys, 'train', path, '--fit-offsets')
    assert 'fitted on 16 images of the train split' in said
    flags = '--fit-offsets', '--no-validate'
    said = output_of(capsys, 'train', path, *flags, code=1)
    assert 'val_dataloader' in said
