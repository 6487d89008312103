"""What users see when something from outside ends a run."""

import os
import runpy
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from mmseg.registry import TRANSFORMS

from mmseg_margin.errors import SettingError
from mmseg_margin.tooling.cli import report_errors
from tests.small_training import PLAIN, training_config
from tests.stats.builders import write_set

TOOL = Path(__file__).resolve().parents[2] / 'tools' / 'train.py'
TRAIN = runpy.run_path(str(TOOL))
KILLED_LOADER = """
import os, signal
from mmseg.registry import TRANSFORMS

@TRANSFORMS.register_module()
class Killed:
    calls = 0

    def __call__(self, results):
        self.calls += 1
        if self.calls == 4:  # as the kernel does when memory is short
            os.kill(os.getpid(), signal.SIGKILL)
        return results
"""


def test_a_killed_loader_gets_one_sentence(tmp_path, record_property):
    (tmp_path / 'killed_loader.py').write_text(KILLED_LOADER)
    root = write_set(tmp_path / 'data')
    pipeline = (*PLAIN[:2], {'type': 'Killed'}, PLAIN[2])
    config = training_config(root, tmp_path / 'w', 40, pipeline)
    config.custom_imports.imports.append('killed_loader')
    config.train_dataloader.num_workers = 2
    config.dump(str(tmp_path / 'config.py'))
    done = subprocess.run(
        [sys.executable, TOOL, 'config.py', '--no-validate'],
        cwd=tmp_path,
        env=os.environ
        | {'PYTHONPATH': f'.:{TOOL.parents[1]}', 'OMP_NUM_THREADS': '1'},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, done.stderr[-3000:]
    assert 'error: DataLoader worker (pid' in done.stderr, done.stderr[-3000:]
    assert 'lower num_workers' in done.stderr
    assert 'Traceback' not in done.stderr
    record_property('kills of a data loader', 1)


DEPTH = """
from mmseg.registry import TRANSFORMS

@TRANSFORMS.register_module()
class AddDepth:
    def __call__(self, results):
        return results['depth']
"""


def write_config(tmp_path, images=3, module='', **loader):
    """A training of a few iterations, with a transform of the user's own."""
    root = write_set(tmp_path / 'data', images)
    pipeline = list(PLAIN)
    config = training_config(root, tmp_path / 'w', 2, PLAIN)
    if module:
        pipeline.insert(2, {'type': 'AddDepth'})
        config.custom_imports.imports.append(module)
    config.train_dataloader.dataset.pipeline = pipeline
    config.train_dataloader.update(loader)
    config.custom_hooks = []
    config.model.decode_head.loss_decode = {'type': 'CrossEntropyLoss'}
    config.dump(str(tmp_path / 'config.py'))
    return [str(tmp_path / 'config.py'), '--no-validate']


@pytest.mark.parametrize('num_workers', [0, 1])
def test_errors_of_users_show_their_line(tmp_path, monkeypatch, num_workers):
    (tmp_path / f'depth{num_workers}.py').write_text(DEPTH)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = f'depth{num_workers}'
    arguments = write_config(tmp_path, module=module, num_workers=num_workers)
    if num_workers:  # registered by the first
        monkeypatch.delitem(TRANSFORMS.module_dict, 'AddDepth', False)
    with pytest.raises(KeyError, match='depth') as caught:
        TRAIN['main'](arguments)
    shown = ''.join(traceback.format_exception(caught.value))
    assert f'{module}.py' in shown
    assert 'line 7' in shown


@pytest.mark.parametrize('num_workers', [0, 1])
def test_an_emptied_image_is_named(tmp_path, capsys, num_workers):
    arguments = write_config(tmp_path, 1, num_workers=num_workers)
    (image,) = (tmp_path / 'data' / 'img').glob('*.png')
    image.write_bytes(b'')
    with pytest.raises(SystemExit):
        TRAIN['main'](arguments)
    said = capsys.readouterr().err
    assert f'error: The image {image} is empty or damaged: copy' in said
    assert 'Traceback' not in said


def test_weights_that_cannot_be_had(tmp_path, capsys):
    arguments = write_config(tmp_path)
    url = 'https://localhost:9/resnet50.pth'
    with pytest.raises(SystemExit):
        TRAIN['main']([*arguments, '--cfg-options', f'load_from={url}'])
    said = capsys.readouterr().err
    assert f'The weights {url} cannot be had' in said
    assert 'model.pretrained=None' in said


@pytest.mark.parametrize(
    ('text', 'options', 'said'),
    [
        ('a = = 1', [], 'cannot be read: '),
        ("_base_ = 'nowhere.py'", [], 'nowhere.py'),
        ('a = [1]', ['--cfg-options', 'a.7=2'], '--cfg-options'),
    ],
)
def test_configs_that_cannot_be_read(tmp_path, capsys, text, options, said):
    path = tmp_path / 'config.py'
    path.write_text(text)
    with pytest.raises(SystemExit):
        TRAIN['main']([str(path), *options])
    assert said in capsys.readouterr().err


def run(capsys, error):
    """What is printed when a tool raises this."""

    @report_errors
    def main() -> None:
        raise error

    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    return capsys.readouterr().err


def test_our_errors_and_accidents_become_sentences(capsys):
    assert 'error: tau=-3\n' in run(capsys, SettingError('tau=-3'))
    full = run(capsys, OSError(28, 'No space left on device'))
    assert 'No space left on device: make room' in full
    # mmengine takes whatever stops its formatting for a mistake in the config.
    wrong = SyntaxError('Failed to format the config file')
    wrong.__cause__ = RuntimeError('DataLoader worker (pid 7) is killed. ')
    said = run(capsys, wrong)
    assert 'error: DataLoader worker (pid 7) is killed. Mostly' in said
    assert 'config file' not in said
    wrong.__cause__ = KeyboardInterrupt()
    assert 'config file' not in run(capsys, wrong)
    assert 'stopped by Ctrl-C' in run(capsys, KeyboardInterrupt())


@pytest.mark.parametrize(
    'error', [KeyError, ValueError, ImportError, OSError, RuntimeError]
)
def test_errors_of_others_pass(capsys, error):
    with pytest.raises(error, match='not ours'):
        run(capsys, error('not ours'))
