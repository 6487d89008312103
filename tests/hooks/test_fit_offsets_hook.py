"""Offsets at the end of a real training."""

import json

import pytest
import torch
from mmengine.runner import Runner

from mmseg_margin.errors import SettingError
from tests.commands import output_of
from tests.offsets.builders import BIAS, offsets_config, write_images

HOOK = {'type': 'FitOffsetsHook', 'num_images': 6}


@pytest.fixture
def config(tmp_path):
    root = write_images(tmp_path / 'data')
    return offsets_config(root, tmp_path / 'work_dir', max_iters=4)


@pytest.mark.parametrize('averaged', [False, True])
def test_beside_the_last_checkpoint(config, tmp_path, averaged):
    """With EMAHook a checkpoint holds the average, which is what is fitted."""
    config.custom_hooks = [{**HOOK, 'force': True}]
    if averaged:
        config.custom_hooks.insert(0, {'type': 'EMAHook'})
    model = Runner.from_cfg(config).train()
    folder = tmp_path / 'work_dir'
    assert (folder / 'iter_4_offsets.png').exists()
    assert (folder / 'last_checkpoint').read_text().endswith('iter_4.pth')
    record = json.loads((folder / 'iter_4_offsets.json').read_text())
    old, new = (
        torch.load(folder / name, weights_only=False)['state_dict']
        for name in ('iter_4.pth', 'iter_4_offsets.pth')
    )
    torch.testing.assert_close(
        new[BIAS] - old[BIAS], torch.tensor(record['offsets'])
    )
    # The model of the training is what it was.
    assert torch.equal(model.state_dict()[BIAS], old[BIAS]) != averaged
    config.load_from = str(folder / 'iter_4.pth')
    config.experiment_name += '_test'
    measured = Runner.from_cfg(config).test()['mIoU']
    assert measured == pytest.approx(record['before']['mean'], abs=0.01)


@pytest.mark.parametrize(
    ('settings', 'said'),
    [
        ({'split': 'test'}, 'train or val'),
        ({'num_images': 0}, '1 or more'),
        ({'metric': 'aAcc'}, 'mIoU or mDice'),
    ],
)
def test_bad_settings_are_refused_before_the_training(config, settings, said):
    config.custom_hooks = [HOOK | settings]
    with pytest.raises(SettingError, match=said):
        Runner.from_cfg(config).train()


def test_with_a_flag_of_the_tool(config, tmp_path, capsys):
    path = tmp_path / 'config.py'
    config.log_level = 'INFO'
    config.dump(path)
    train = 'train', path, '--fit-offsets'
    said = output_of(capsys, *train)
    assert 'fitted on 16 images of the train split' in said
    said = output_of(capsys, *train, '--no-validate', code=1)
    assert 'has no val_dataloader' in said
