"""Runs in processes of their own, several at a time."""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import torch
from rich.progress import MofNCompleteColumn, Progress

from mmseg_margin.errors import MarginError
from mmseg_margin.stats.scan import available_cores

from .curves import CURVES_FILE
from .records import FITTED, read_run

LOG_FILE = 'log.txt'
POLL_SECONDS = 0.5


class RunFailedError(MarginError):
    """A run ended without a record; the message names its log."""


def run_all(
    folders: list[Path], iterations: int, jobs: int, fit: bool = False
) -> None:
    """Do all runs that are not done, with one progress bar over all.

    Raises:
        RunFailedError: After all other runs, so that no work is lost.
    """
    waiting = [each for each in folders if not read_run(each).is_done(fit)]
    done = (len(folders) - len(waiting)) * iterations
    running: dict[int, tuple[Path, subprocess.Popen]] = {}
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with Progress(*columns, refresh_per_second=1) as progress:
        bar = progress.add_task('iterations', total=len(folders) * iterations)
        try:
            while waiting or running:
                for slot in set(range(jobs)) - running.keys():
                    if waiting:
                        folder = waiting.pop(0)
                        process = _start(folder, slot, jobs, fit)
                        running[slot] = folder, process
                time.sleep(POLL_SECONDS)
                for slot, (folder, process) in list(running.items()):
                    if process.poll() is not None:
                        del running[slot]
                        done += iterations
                        progress.console.print(_outcome(folder), markup=False)
                begun = sum(_iterations_of(f) for f, _ in running.values())
                progress.update(bar, completed=done + begun)
        finally:
            for _, process in running.values():
                process.terminate()
                process.wait()
    failed = [each for each in folders if not read_run(each).is_done(fit)]
    if failed:
        raise RunFailedError(
            f'{len(failed)} of {len(folders)} runs failed, the first of them '
            f'{read_run(failed[0])}: see {failed[0] / LOG_FILE}, correct the '
            'cause and give the same command again; the other results are '
            'kept.'
        )


def environment_of(slot: int, jobs: int) -> dict[str, str]:
    """Threads for a fraction of the cores, and one of the visible GPUs."""
    # An existing OMP_NUM_THREADS is respected.
    threads = str(max(1, available_cores() // jobs))
    environment = {'OMP_NUM_THREADS': threads, **os.environ}
    if torch.cuda.is_available():
        gpu = slot % torch.cuda.device_count()
        # The entries may be indices or UUIDs.
        visible = os.environ.get('CUDA_VISIBLE_DEVICES')
        entry = visible.split(',')[gpu].strip() if visible else str(gpu)
        environment['CUDA_VISIBLE_DEVICES'] = entry
    return environment


def _start(folder: Path, slot: int, jobs: int, fit: bool) -> subprocess.Popen:
    command = [
        sys.executable,
        '-m',
        f'{__package__}.training',
        str(folder),
    ]
    with open(folder / LOG_FILE, 'ab') as log:
        return subprocess.Popen(
            command + ['--fit-offsets'] * fit,
            env=environment_of(slot, jobs),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _outcome(folder: Path) -> str:
    run = read_run(folder)
    if not run.is_done():
        return f'{run}: failed, see {folder / LOG_FILE}'
    text = f'{run}: mIoU {run.metrics["mIoU"]:.2f}'
    fitted = run.figures.get(f'{FITTED}mIoU')
    return text + (f', {fitted:.2f} with fitted offsets' if fitted else '')


def _iterations_of(folder: Path) -> int:
    """As many as the curves of a run have come to."""
    with suppress(OSError, ValueError):
        curves = json.loads((folder / CURVES_FILE).read_text('utf-8'))
        return max(points[-1][0] for points in curves.values())
    return 0
