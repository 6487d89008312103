"""tools/tune.py as users call it, and its best config in tools/train.py."""

import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.processes import FORK, wait_for
from tools.instrument_synthesis import Settings, write_dataset

ROOT = Path(__file__).parents[2]
TOOLS = {
    name: runpy.run_path(str(ROOT / 'tools' / f'{name}.py'))['main']
    for name in ('train', 'tune')
}
DEMO = next((ROOT / 'configs' / 'demo').glob('*_margin_*.py'))
OPTIONS = [
    'train_cfg.max_iters=4',
    'train_dataloader.batch_size=2',
    'model.backbone.base_channels=4',
    'model.backbone.stem_channels=4',
    'model.decode_head.in_channels=16',
    'model.decode_head.c1_in_channels=4',
    'model.decode_head.channels=8',
    'model.auxiliary_head.in_channels=8',
    'model.decode_head.loss_decode.backend=eager',
    'model.decode_head.loss_decode.tau=3',
]


@pytest.fixture(scope='module')
def options(tmp_path_factory):
    """A very small data set, whose test split is missing."""
    folder = tmp_path_factory.mktemp('parts')
    write_dataset(
        folder, Settings(width=64, height=48, train=4, val=2, test=1)
    )
    return [
        *OPTIONS,
        f'train_dataloader.dataset.data_root={folder}',
        f'val_dataloader.dataset.data_root={folder}',
    ]


def run(tool, log, arguments):
    """The body of a forked process."""
    torch.set_num_threads(1)  # threads of the parent do not exist here
    # A shell's background jobs start with the signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdout = sys.stderr = log.open('w', buffering=1)
    TOOLS[tool]([str(argument) for argument in arguments])


def start(tool, log, *arguments):
    process = FORK.Process(target=run, args=(tool, log, arguments))
    process.start()
    return process


def test_stop_go_on_and_train_with_the_best(tmp_path, options):
    out, log = tmp_path / 'search', tmp_path / 'log'
    command = [DEMO, '--out', out, '--cfg-options', *options]
    process = start('tune', log, *command, '--trials', 3)
    while not log.exists() or 'trial 0:' not in log.read_text():
        assert process.is_alive()
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    assert wait_for([process], 600) == [1]
    assert 'the same command goes on' in log.read_text()
    assert 'Traceback' not in log.read_text()

    process = start('tune', log, *command, '--trials', 2)
    assert wait_for([process], 600) == [0], log.read_text()
    assert 'trial 0:' not in log.read_text()
    assert 'trial 1: form=paper, pos_weight=num_cl' in log.read_text()
    assert 'above preset paper and' in log.read_text()
    for name in ('report/index.html', 'report/report.md', 'best_config.py'):
        assert (out / name).is_file()

    process = start(
        *('train', log, out / 'best_config.py', '--no-validate'),
        *('--work-dir', tmp_path / 'best', '--cfg-options', *options),
    )
    assert wait_for([process], 600) == [0], log.read_text()
    assert (tmp_path / 'best' / 'last_checkpoint').is_file()


def test_missing_optuna_gets_one_sentence():
    blocker = (
        'import runpy, sys\n'
        'import importlib.util\n'
        'find = importlib.util.find_spec\n'
        'importlib.util.find_spec = lambda name, *a: (\n'
        "    None if name == 'optuna' else find(name, *a))\n"
        "sys.argv = ['tune.py', 'config.py']\n"
        f'runpy.run_path({str(ROOT / "tools/tune.py")!r}, '
        "run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, '-c', blocker],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "pip install 'mmseg_margin[tune]'" in done.stderr
    assert 'Traceback' not in done.stderr
