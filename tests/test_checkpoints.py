"""Checkpoints: weights are loaded, code is not executed."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.fileio import LocalBackend, get_file_backend
from mmengine.logging import HistoryBuffer
from mmengine.runner import CheckpointLoader, save_checkpoint

from mmseg_margin.checkpoints import AtomicBackend, CheckpointError
from tests.commands import output_of
from tests.small_training import (
    PLAIN,
    add_validation,
    build_runner,
    keep_last_and_best,
    train,
    training_config,
    write_config,
)
from tests.stats.builders import write_set


class Program:
    """A call that pickle executes when it loads this object."""

    def __init__(self, *call) -> None:
        self.call = call

    def __reduce__(self):
        return self.call


def write_program(path: Path, trace: Path, **options) -> None:
    """A checkpoint with weights, and a command that creates a file."""
    program = Program(os.system, (f'touch {trace}',))
    weights = {'state_dict': {'w': torch.ones(2)}, 'meta': {'x': program}}
    torch.save(weights, path, **options)


def load(path: Path) -> dict:
    return CheckpointLoader.load_checkpoint(str(path), 'cpu', logger='silent')


@pytest.mark.parametrize('as_zip', [True, False])
def test_programs_are_refused(tmp_path, as_zip):
    path, trace = tmp_path / 'evil.pth', tmp_path / 'trace'
    write_program(path, trace, _use_new_zipfile_serialization=as_zip)
    with pytest.raises(CheckpointError, match='more than weights') as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert '\n' not in str(caught.value)
    assert not trace.exists()
    torch.load(path, weights_only=False)  # to show that it would have run
    assert trace.exists()


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
    with pytest.raises(CheckpointError, match='more than weights'):
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
    for content in (b'', b'PK', b'text', whole[: len(whole) // 2], whole[:-9]):
        path.write_bytes(content)
        with pytest.raises(CheckpointError) as caught:
            load(path)
        assert str(path) in str(caught.value)
        assert '\n' not in str(caught.value)
    with pytest.raises(FileNotFoundError, match='does not exist'):
        load(tmp_path / 'nowhere.pth')


def test_mmengine_writes_atomically(tmp_path):
    backend = get_file_backend(str(tmp_path))
    assert isinstance(backend, AtomicBackend)
    backend.put(b'bytes', tmp_path / 'folder' / 'file')
    backend.put_text('größer', str(tmp_path / 'text'))
    assert (tmp_path / 'folder' / 'file').read_bytes() == b'bytes'
    assert LocalBackend().get_text(tmp_path / 'text') == 'größer'


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.glob('*.pth')}


def test_old_checkpoints_are_removed_after_new_ones_are_complete(
    tmp_path, monkeypatch
):
    """The last and the best one, with mmengine's hook and one of each."""
    root, work_dir = write_set(tmp_path / 'data', 4), tmp_path / 'w'
    config = training_config(root, work_dir, 6, pipeline=PLAIN)
    keep_last_and_best(config, interval=2)
    present = []
    write = AtomicBackend.put

    def put(backend, content, path):
        present.append(names(work_dir))
        write(backend, content, path)

    monkeypatch.setattr(AtomicBackend, 'put', put)
    train(config)
    assert all(present[1:]), present
    assert {'best_mIoU_iter_2.pth', 'iter_2.pth'} <= present[3]
    assert names(work_dir) == {'best_mIoU_iter_6.pth', 'iter_6.pth'}

    def full(*_) -> None:
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(AtomicBackend, 'put', full)
    config.train_cfg.max_iters = 8
    config.experiment_name += '_resumed'
    with pytest.raises(OSError, match='No space left'):
        train(config, load_from=str(work_dir / 'iter_6.pth'), resume=True)
    assert names(work_dir) == {'best_mIoU_iter_6.pth', 'iter_6.pth'}


def test_validation_without_a_training(tmp_path):
    """Where mmengine's hook of checkpoints knows no folder yet."""
    config = training_config(write_set(tmp_path / 'data'), tmp_path / 'w', 2)
    add_validation(config, 1)
    assert 'mIoU' in build_runner(config).val()


@pytest.mark.parametrize('tool', ['test', 'train', 'mosaic'])
def test_tools_refuse_programs(tmp_path, monkeypatch, capsys, tool):
    """With one sentence and an exit code."""
    monkeypatch.chdir(tmp_path)
    path, trace = tmp_path / 'evil.pth', tmp_path / 'trace'
    write_program(path, trace)
    metric = {'type': 'IoUMetric'}
    validation = {'val_cfg': {'type': 'ValLoop'}, 'val_evaluator': metric}
    write_config(tmp_path / 'config.py', **validation)
    arguments = [path]
    if tool == 'train':
        arguments = ['--no-validate', '--cfg-options', f'load_from={path}']
    said = output_of(capsys, tool, 'config.py', *arguments, code=1)
    assert "more than weights, 'posix.system'" in said
    assert not trace.exists()
