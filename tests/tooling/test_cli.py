"""What users see when something from outside ends a run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mmseg_margin.tooling.cli import report_errors
from tests.small_training import PLAIN, training_config
from tests.stats.builders import write_set

TOOL = Path(__file__).resolve().parents[2] / 'tools' / 'train.py'
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
        env=os.environ | {'PYTHONPATH': '.', 'OMP_NUM_THREADS': '1'},
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


def run(capsys, error):
    """What is printed when a tool raises this."""

    @report_errors
    def main() -> None:
        raise error

    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    return capsys.readouterr().err


def test_errors_become_sentences(capsys, monkeypatch):
    monkeypatch.setenv('TORCH_FORCE_WEIGHTS_ONLY_LOAD', '1')
    assert 'error: no such key\n' in run(capsys, KeyError('no such key'))
    full = run(capsys, OSError(28, 'No space left on device'))
    assert 'No space left on device: make room' in full
    with pytest.raises(RuntimeError, match='a defect'):
        run(capsys, RuntimeError('a defect'))
    wrong = SyntaxError('Failed to format the config file')
    wrong.__cause__ = RuntimeError('DataLoader worker (pid 7) is killed. ')
    said = run(capsys, wrong)
    assert 'error: DataLoader worker (pid 7) is killed. Mostly' in said
    assert 'config file' not in said
