"""A process for each run: ``python -m mmseg_margin.comparison.jobs FOLDER``.

So memory is measured for one objective at a time, and a run that fails takes
no other with it. The standard input of a run is a pipe from the comparison
and closes with it, whatever has ended it.
"""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch
from filelock import FileLock
from mmengine.config import Config
from rich.progress import MofNCompleteColumn, Progress

from mmseg_margin.errors import MarginError
from mmseg_margin.stats.scan import available_cores
from mmseg_margin.tooling.cli import report_errors

from .measures import CURVES_FILE
from .records import RESULT_FILE, read_json, write_record
from .runs import CONFIG_FILE, Run, train_and_test

LOG_FILE = 'log.txt'
POLL_SECONDS = 0.5


class RunFailedError(MarginError):
    """A run ended without a result; the message names its log."""


def run_all(runs: list[Run], iterations: int, jobs: int) -> None:
    """Do what has no result yet, with one progress view over all runs.

    Raises:
        RunFailedError: After all other runs, so that no work is lost.
    """
    waiting = [run for run in runs if not run.is_done]
    running: dict[int, tuple[Run, subprocess.Popen]] = {}
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with Progress(*columns, refresh_per_second=1) as progress:
        bar = progress.add_task('iterations', total=len(runs) * iterations)
        try:
            while waiting or running:
                for slot in set(range(jobs)) - running.keys():
                    if waiting:
                        run = waiting.pop(0)
                        running[slot] = run, _start(run, slot, jobs)
                time.sleep(POLL_SECONDS)
                for slot, (run, process) in list(running.items()):
                    if process.poll() is not None:
                        del running[slot]
                        progress.console.print(_outcome(run), markup=False)
                done = sum(_iterations_done(run, iterations) for run in runs)
                progress.update(bar, completed=done)
        finally:
            for _, process in running.values():
                process.terminate()
                process.wait()
    failed = [run for run in runs if not run.is_done]
    if failed:
        raise RunFailedError(
            f'{len(failed)} of {len(runs)} runs failed, the first of them '
            f'{failed[0]}: see {failed[0].folder / LOG_FILE}, correct the '
            'cause and give the same command again; the other results are '
            'kept.'
        )


def environment_of(slot: int, jobs: int) -> dict[str, str]:
    """A share of the cores for each job, and a GPU if there are any."""
    # Who has set a number of threads shares the machine with others.
    threads = str(max(1, available_cores() // jobs))
    environment = {'OMP_NUM_THREADS': threads, **os.environ}
    if torch.cuda.is_available():
        gpu = slot % torch.cuda.device_count()
        environment['CUDA_VISIBLE_DEVICES'] = str(gpu)
    return environment


def _start(run: Run, slot: int, jobs: int) -> subprocess.Popen:
    with open(run.folder / LOG_FILE, 'ab') as log:
        return subprocess.Popen(
            [sys.executable, '-m', f'{__package__}.jobs', run.folder],
            env=environment_of(slot, jobs),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _outcome(run: Run) -> str:
    if not run.is_done:
        return f'{run}: failed, see {run.folder / LOG_FILE}'
    metrics = read_json(run.folder / RESULT_FILE)['metrics']
    return f'{run}: mIoU {metrics["mIoU"]:.2f}'


def _iterations_done(run: Run, iterations: int) -> int:
    """All, or as many as the curves of the run have come to."""
    if run.is_done:
        return iterations
    try:
        curves = read_json(run.folder / CURVES_FILE)
    except FileNotFoundError:
        return 0
    return max(points[-1][0] for points in curves.values())


def _end_with_comparison() -> None:
    # Not through sys.stdin, whose lock would be held when Python shuts down.
    os.read(0, 1)
    # Two runs in one folder would spoil each other.
    os._exit(1)


@report_errors
def main(folder: Path) -> None:
    """The run whose config is in a folder."""
    threading.Thread(target=_end_with_comparison, daemon=True).start()
    # Two comparisons may be at work in one folder.
    with FileLock(folder / 'lock'):
        if not (folder / RESULT_FILE).exists():
            result = train_and_test(Config.fromfile(folder / CONFIG_FILE))
            write_record(result, folder / RESULT_FILE)


if __name__ == '__main__':
    main(Path(sys.argv[1]))
