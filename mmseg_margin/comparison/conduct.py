"""Carries out the runs of a comparison, several at once if asked."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch
from rich.progress import MofNCompleteColumn, Progress

from mmseg_margin.errors import MarginError
from mmseg_margin.stats.scan import available_cores

from .curves_hook import CURVES_FILE
from .plan import Run
from .results import RESULT_FILE, RunResult, read_record

LOG_FILE = 'log.txt'
POLL_SECONDS = 2.0


class RunFailedError(MarginError):
    """A run ended without a result; the message names its log."""


def conduct(runs: list[Run], iterations: int, jobs: int) -> None:
    """Do what has no result yet, with one progress view over all runs.

    Raises:
        RunFailedError: After all other runs, so that no work is lost.
    """
    waiting = [run for run in runs if not _is_done(run)]
    running: dict[int, tuple[Run, subprocess.Popen]] = {}
    failed: list[Run] = []
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with Progress(*columns, refresh_per_second=1) as progress:
        bar = progress.add_task(
            'iterations',
            total=len(runs) * iterations,
            completed=_done_iterations(runs, iterations),
        )
        try:
            while waiting or running:
                for slot in range(jobs):
                    if waiting and slot not in running:
                        run = waiting.pop(0)
                        running[slot] = run, _start(run, slot, jobs)
                time.sleep(POLL_SECONDS)
                for slot, (run, process) in list(running.items()):
                    if process.poll() is not None:
                        del running[slot]
                        progress.console.print(_outcome(run), markup=False)
                        if not _is_done(run):
                            failed.append(run)
                done = _done_iterations(runs, iterations)
                progress.update(bar, completed=done)
        finally:
            for _, process in running.values():
                process.terminate()
                process.wait()
    if failed:
        raise RunFailedError(
            f'{len(failed)} of {len(runs)} runs failed, the first of them '
            f'{failed[0]}: see {failed[0].folder / LOG_FILE}, correct the '
            'cause and give the same command again; the other results are '
            'kept.'
        )


def _start(run: Run, slot: int, jobs: int) -> subprocess.Popen:
    """A process with its share of the cores, and a GPU if there are any."""
    threads = max(1, available_cores() // jobs)
    environment = {**os.environ, 'OMP_NUM_THREADS': str(threads)}
    if torch.cuda.is_available():
        gpu = slot % torch.cuda.device_count()
        environment['CUDA_VISIBLE_DEVICES'] = str(gpu)
    with open(run.folder / LOG_FILE, 'ab') as log:
        return subprocess.Popen(
            [sys.executable, '-m', 'mmseg_margin.comparison.run', run.folder],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _outcome(run: Run) -> str:
    if not _is_done(run):
        return f'{run}: failed, see {run.folder / LOG_FILE}'
    result = read_record(RunResult, run.folder / RESULT_FILE)
    return f'{run}: mIoU {result.metrics["mIoU"]:.2f}'


def _is_done(run: Run) -> bool:
    return (run.folder / RESULT_FILE).exists()


def _done_iterations(runs: list[Run], iterations: int) -> int:
    return sum(
        iterations if _is_done(run) else _last_point(run.folder)
        for run in runs
    )


def _last_point(folder: Path) -> int:
    """The iteration of the newest point of a run's curves."""
    try:
        curves = json.loads((folder / CURVES_FILE).read_text('utf-8'))
        return max(points[-1][0] for points in curves.values())
    except FileNotFoundError:
        return 0
