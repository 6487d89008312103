"""Trains a config under several objectives: behind ``compare``.

Each run has a process of its own, several of which are at work at a time.
"""

import copy
import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
from contextlib import suppress
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from mmengine.config import Config
from mmengine.registry import init_default_scope
from rich.progress import MofNCompleteColumn, Progress

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.errors import MarginError, MissingFileError, SettingError
from mmseg_margin.losses.objectives import parse_objective
from mmseg_margin.losses.swap import set_objective
from mmseg_margin.stats import StatsCache, check_labels

from .curves import PROGRESS_FILE
from .records import (
    COMMON_FILE,
    CONFIG_FILE,
    FITTED,
    Run,
    read_run,
    read_runs,
    run_folder,
    write_run,
)

LOG_FILE = 'log.txt'
POLL_SECONDS = 0.5
OTHER_FOLDER = 'choose another --out, or remove that folder to begin again.'


class RunFailedError(MarginError):
    """A run ended without a result; the message has the reason."""


def named_objectives(texts: list[str]) -> dict[str, str]:
    """Objectives by the name that a user gave them, or by themselves.

    Example:
        >>> named_objectives(['ce', 'strong=margin:tau=20', 'margin:tau=5'])
        {'ce': 'ce', 'strong': 'margin:tau=20', 'margin:tau=5': 'margin:tau=5'}
    """
    objectives: dict[str, str] = {}
    for text in texts:
        name, equals, objective = text.partition('=')
        # Settings come after a colon, and the terms of a sum after a plus.
        if not (name and objective) or {':', '+'} & {*name}:
            name = objective = text
        if objectives.setdefault(name, objective) != objective:
            raise SettingError(
                f'--losses names both {objectives[name]} and {objective} '
                f'{name!r}: give each a name of its own.'
            )
    return objectives


def compare(
    cfg: Config,
    objectives: dict[str, str],
    seeds: list[int],
    out: Path,
    init: str | None = None,
    jobs: int = 1,
    fit_offsets: bool = False,
) -> None:
    """Train and test every objective with every seed.

    What has been done before in the same folder is not done again, and
    objectives, seeds and fitted offsets can be added to it. In the checkpoint
    to start from, ``init``, ``{seed}`` is replaced.

    Raises:
        RunFailedError: After all other runs, so that no work is lost.
    """
    for flag, number in (('--seeds', len(seeds)), ('--jobs', jobs)):
        if number < 1:
            raise SettingError(f'{flag} must be 1 or more.')
    if 'max_iters' not in cfg.train_cfg:
        raise SettingError(
            'The config trains by epochs: give it an IterBasedTrainLoop with '
            'max_iters, so that every objective gets the same iterations.'
        )
    losses = {n: parse_objective(text) for n, text in objectives.items()}
    for terms in losses.values():
        set_objective(copy.deepcopy(cfg), terms)
    start = init or cfg.get('load_from')
    inits = {seed: init and init.replace('{seed}', str(seed)) for seed in seeds}
    starts = {s: describe_start(inits[s] or cfg.get('load_from')) for s in seeds}
    common = describe(cfg)
    command = f'{Path(sys.argv[0]).name} {shlex.join(sys.argv[1:])}'
    out.mkdir(parents=True, exist_ok=True)
    folders: dict[Path, str | None] = {}
    with FileLock(out / 'lock'):
        _keep(out / CONFIG_FILE, cfg.pretty_text)
        _keep(out / COMMON_FILE, json.dumps(common, indent=1))
        known = {(run.name, run.seed): run for run in read_runs(out)}
        for run in known.values():
            if losses.get(run.name, run.losses) != run.losses:
                raise _other(f'another objective called {run.name}')
            if starts.get(run.seed, run.start) != run.start:
                raise _other(f'another start, {run.start or "no checkpoint"}')
        # Seed by seed, so that a comparison cut short is still a fair one.
        for seed, name in product(seeds, objectives):
            folder = run_folder(out, name, seed)
            folders[folder] = inits[seed]
            if (name, seed) not in known:
                settings = objectives[name], losses[name], starts[seed]
                run = Run(len(known), name, seed, *settings, command)
                known[name, seed] = run
                write_run(run, folder)
    undone = {
        folder: path
        for folder, path in folders.items()
        if not read_run(folder).is_done(fit_offsets)
    }
    print(
        f'{len(folders)} training runs of {common["iterations"]:,} iterations '
        f'each: {", ".join(objectives)} with {len(seeds)} seed(s), {jobs} at a '
        f'time, starting from {start or "the initialisation of the config"}.'
        + (len(undone) < len(folders)) * f' {len(undone)} are left to do.',
        flush=True,
    )
    run_all(undone, common['iterations'], jobs, fit_offsets)


def _keep(path: Path, text: str) -> None:
    """Write a file of the comparison, or raise if it says something else."""
    if path.exists() and path.read_text('utf-8') != text:
        raise _other('other settings or labels')
    atomic_write_text(path, text)


def _other(what: str) -> SettingError:
    return SettingError(
        f'The folder holds a comparison with {what}: {OTHER_FOLDER}'
    )


def describe_start(path: str | None) -> str | None:
    """Name and hash of a checkpoint, or the address of a remote one."""
    if not path or '://' in path:
        return path
    if not Path(path).is_file():
        raise MissingFileError(
            f'The checkpoint {path} to start from does not exist: give the '
            'path to a .pth file, in which {seed} may stand for the seed.'
        )
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return f'{Path(path).name} (sha256 {digest[:16]})'


def describe(cfg: Config) -> dict[str, Any]:
    """What all runs have in common; the labels are checked too."""
    init_default_scope(cfg.get('default_scope', 'mmseg'))
    report = check_labels(
        cfg.train_dataloader.dataset, cfg.model, StatsCache()
    )
    report.raise_errors()
    metainfo = report.dataset.metainfo
    return {
        'config': Path(cfg.filename).name,
        'iterations': cfg.train_cfg.max_iters,
        'classes': list(metainfo['classes']),
        'palette': [list(colour) for colour in metainfo['palette']],
        'class_counts': list(report.stats.counts),
    }


def run_all(
    undone: dict[Path, str | None], iterations: int, jobs: int, fit: bool
) -> None:
    """Carry out runs, given by their folders, with one progress bar."""
    waiting = list(undone)
    untrained = {f for f in undone if not read_run(f).is_done()}
    running: dict[int, tuple[Path, subprocess.Popen]] = {}
    failures: list[str] = []
    done, is_estimated = 0, False
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with Progress(*columns, refresh_per_second=1) as progress:
        bar = progress.add_task('iterations', total=len(undone) * iterations)
        say = progress.console.print
        try:
            while waiting or running:
                for slot in set(range(jobs)) - running.keys():
                    if waiting:
                        folder = waiting.pop(0)
                        process = _start(folder, undone[folder], slot, jobs, fit)
                        running[slot] = folder, process
                time.sleep(POLL_SECONDS)
                for slot, (folder, process) in [*running.items()]:
                    if (code := process.poll()) is None:
                        continue
                    del running[slot]
                    done += iterations
                    run = read_run(folder)
                    outcome = _outcome(run, folder, fit, code)
                    say(f'{run}: {outcome}', markup=False, soft_wrap=True)
                    if not run.is_done(fit):
                        failures.append(f'{run}: {outcome}')
                begun = {f: _progress(f) for f, _ in running.values()}
                now = done + sum(iteration for iteration, _ in begun.values())
                progress.update(bar, completed=now)
                for folder in begun.keys() & untrained:
                    if begun[folder][0] and not is_estimated:
                        is_estimated = True
                        total = len(untrained) * iterations / jobs
                        say(_estimate(begun[folder][1], total), soft_wrap=True)
        finally:
            for _, process in running.values():
                process.terminate()
                process.wait()
    if failures:
        raise RunFailedError(
            f'{len(failures)} of {len(undone)} runs failed, the first of them '
            f'{failures[0]} Correct the cause and give the same command '
            'again; the other results are kept.'
        )


def _estimate(seconds: float, iterations: float) -> str:
    total = timedelta(seconds=round(seconds * iterations))
    return (
        f'An iteration takes {seconds:.2g} s, so the training takes about '
        f'{total} (hours:minutes:seconds), without start-up and tests.'
    )


def _outcome(run: Run, folder: Path, fit: bool, code: int) -> str:
    if not run.is_done(fit):
        reason = run.error or f'its process ended with exit code {code}'
        return f'failed, {reason} (the log is {folder / LOG_FILE}).'
    text = f'mIoU {run.metrics["mIoU"]:.2f}'
    if fit and run.fitted:
        fitted = run.fitted['metrics']['mIoU']
        text += f', {fitted:.2f} with {FITTED}offsets'
    return text


def environment_of(slot: int, jobs: int) -> dict[str, str]:
    """Threads for a fraction of the cores, and one of the visible GPUs."""
    # An existing OMP_NUM_THREADS is respected.
    threads = str(max(1, torch.get_num_threads() // jobs))
    environment = {'OMP_NUM_THREADS': threads, **os.environ}
    if torch.cuda.is_available():
        gpu = slot % torch.cuda.device_count()
        # The entries may be indices or UUIDs.
        visible = os.environ.get('CUDA_VISIBLE_DEVICES')
        entry = visible.split(',')[gpu].strip() if visible else str(gpu)
        environment['CUDA_VISIBLE_DEVICES'] = entry
    return environment


def _start(
    folder: Path, init: str | None, slot: int, jobs: int, fit: bool
) -> subprocess.Popen:
    command = [sys.executable, '-m', __package__, str(folder)]
    command += [f'--init={init}'] * bool(init) + ['--fit-offsets'] * fit
    with open(folder / LOG_FILE, 'ab') as log:
        return subprocess.Popen(
            command,
            env=environment_of(slot, jobs),
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _progress(folder: Path) -> tuple[int, float]:
    """Iterations that a run has done, and the seconds of one."""
    with suppress(OSError, ValueError):
        return tuple(json.loads((folder / PROGRESS_FILE).read_text('utf-8')))
    return 0, 0.0
