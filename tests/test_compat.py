"""Checkpoints: weights are loaded, code is not executed."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.runner import CheckpointLoader, save_checkpoint

from mmseg_margin.errors import SettingError
from tests.commands import output_of
from tests.small_training import write_config


class Program:
    """A call that pickle executes when it loads this object."""

    def __init__(self, *call) -> None:
        self.call = call

    def __reduce__(self):
        return self.call


def load(path: Path) -> dict:
    return CheckpointLoader.load_checkpoint(str(path), 'cpu', logger='silent')


@pytest.mark.parametrize(
    'call',
    [
        (eval, ('1',)),
        (getattr, (HistoryBuffer, '__init__')),
        (getattr, (np.ndarray, 'tofile')),
    ],
)
def test_safe_globals_give_access_to_nothing_else(tmp_path, call):
    path = tmp_path / 'evil.pth'
    torch.save({'state_dict': {}, 'x': Program(*call)}, path)
    with pytest.raises(SettingError, match='weights'):
        load(path)


def test_checkpoints_of_mmengine_are_loaded(tmp_path):
    buffer = HistoryBuffer([1.0, 2.0], [1, 1])
    saved = {
        'state_dict': {'w': torch.ones(2)},
        'message_hub': {'loss': buffer},
        'meta': {'score': np.float64(0.5), 'states': np.arange(3, dtype='u4')},
    }
    save_checkpoint(saved, str(tmp_path / 'a.pth'))
    found = load(tmp_path / 'a.pth')
    assert found['message_hub']['loss'].mean() == 1.5
    assert found['meta']['score'] == 0.5
    assert found['meta']['states'].tolist() == [0, 1, 2]


def test_damaged_checkpoints_get_one_sentence(tmp_path):
    path = tmp_path / 'bad.pth'
    torch.save({'state_dict': {'w': torch.randn(99)}}, path)
    whole = path.read_bytes()
    for content in (b'', b'PK', b'text', whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(SettingError, match='damaged'):
            load(path)
    with pytest.raises(FileNotFoundError, match='does not exist'):
        load(tmp_path / 'nowhere.pth')


def test_tools_refuse_programs(tmp_path, monkeypatch, capsys):
    """With one sentence, before any of it runs."""
    monkeypatch.chdir(tmp_path)
    path, trace = tmp_path / 'evil.pth', tmp_path / 'trace'
    program = Program(os.system, (f'touch {trace}',))
    torch.save({'state_dict': {}, 'meta': {'x': program}}, path)
    metric = {'type': 'IoUMetric'}
    validation = {'val_cfg': {'type': 'ValLoop'}, 'val_evaluator': metric}
    write_config(tmp_path / 'config.py', **validation)
    said = output_of(capsys, 'test', 'config.py', path, code=1)
    assert 'more than weights' in said
    assert not trace.exists()
    torch.load(path, weights_only=False)  # to show that it would have run
    assert trace.exists()
