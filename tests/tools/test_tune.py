"""tools/tune.py as users call it."""

import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

from tests.processes import FORK, wait_for
from tests.small_training import write_config

ROOT = Path(__file__).parents[2]
MAIN = runpy.run_path(str(ROOT / 'tools' / 'tune.py'))['main']


def run(log, arguments):
    """The body of a forked process."""
    # A shell's background jobs start with the signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)  # threads of the parent do not exist here
    sys.stdout = sys.stderr = log.open('w', buffering=1)
    MAIN([str(argument) for argument in arguments])


def start(log, *arguments):
    process = FORK.Process(target=run, args=(log, arguments))
    process.start()
    return process


def test_stop_and_go_on(tmp_path):
    out, log = tmp_path / 'search', tmp_path / 'log'
    config = write_config(tmp_path / 'small.py', 'missing', max_iters=2)
    # More than are done before the signal arrives, however busy the machine.
    process = start(log, config, '--out', out, '--trials', 99)
    while not log.exists() or 'trial 0:' not in log.read_text():
        assert process.is_alive()
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    assert wait_for([process], 600) == [1]
    assert 'The same command goes on' in log.read_text()
    assert 'Traceback' not in log.read_text()

    process = start(log, config, '--out', out, '--trials', 2)
    assert wait_for([process], 600) == [0], log.read_text()
    assert 'trial 0:' not in log.read_text()
    assert 'trial 1: form=paper, pos_weight=num_cl' in log.read_text()
    assert 'above preset ' in log.read_text()
    for name in ('report/index.html', 'report/report.md', 'best_config.py'):
        assert (out / name).is_file()


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
