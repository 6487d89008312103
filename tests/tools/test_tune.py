"""tools/tune.py as users call it."""

import os
import signal
import time

from tests.commands import TOOLS, load_tool, output_of_python
from tests.processes import fork, run_tool, wait_for
from tests.small_training import write_config


def run(*arguments):
    """The body of a forked process."""
    # A shell's background jobs start with the signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run_tool(load_tool('tune')['main'], *arguments)


def test_stop_and_go_on(tmp_path, capfd):
    out, log = tmp_path / 'search', tmp_path / 'log'
    config = write_config(tmp_path / 'small.py', 'missing', max_iters=2)
    load_tool('tune')

    def start(trials):
        arguments = [config, '--out', out, '--trials', trials]
        with capfd.disabled():
            return fork(run, [*map(str, arguments)], log)

    # More than are done before the signal arrives, however busy the machine.
    process = start(99)
    while not log.exists() or 'trial 0:' not in log.read_text():
        assert process.is_alive()
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    assert wait_for([process], 600) == [1]
    assert 'same command' in log.read_text()
    assert 'Traceback' not in log.read_text()

    assert wait_for([start(2)], 600) == [0], log.read_text()
    assert 'trial 0:' not in log.read_text()
    assert 'trial 1: objective=margin, pos_weight=num' in log.read_text()
    assert 'above ' in log.read_text()
    for name in ('report/index.html', 'report/report.md', 'best_config.py'):
        assert (out / name).is_file()


def test_missing_optuna_gets_one_sentence(tmp_path):
    blocker = (
        'import runpy, sys\n'
        'import importlib.util\n'
        'find = importlib.util.find_spec\n'
        'importlib.util.find_spec = lambda name, *a: (\n'
        "    None if name == 'optuna' else find(name, *a))\n"
        "sys.argv = ['tune.py', 'config.py']\n"
        f"runpy.run_path({str(TOOLS / 'tune.py')!r}, run_name='__main__')\n"
    )
    said = output_of_python(tmp_path, '-c', blocker, code=1)
    assert "pip install 'mmseg_margin[tune]'" in said
    assert 'Traceback' not in said
