"""Trains a config under several objectives: behind ``compare``.

Each run has a process of its own, several of which are at work at a time.
"""

import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from mmengine.config import Config
from mmengine.registry import init_default_scope

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.errors import MissingFileError, SettingError, printable
from mmseg_margin.losses.objectives import parse_objective
from mmseg_margin.stats import StatsCache, check_labels

from .curves import SECONDS_FILE
from .records import (
    COMMON_FILE,
    CONFIG_FILE,
    Run,
    read_comparison,
    read_run,
    run_folder,
    write_run,
)

LOG_FILE = 'log.txt'
POLL_SECONDS = 0.5


def compare(
    cfg: Config,
    objectives: dict[str, str],
    seeds: Sequence[int],
    out: Path,
    init: str | None = None,
    jobs: int = 1,
    fit_offsets: bool = False,
) -> list[str]:
    """Train and test every objective with every seed.

    What has been done before in the same folder is not done again, and
    objectives, seeds and fitted offsets can be added to it. In the checkpoint
    to start from, ``init``, ``{seed}`` is replaced.

    Returns:
        The runs that failed, with their logs; the others are carried out.
    """
    if 'max_iters' not in cfg.train_cfg:
        raise SettingError(
            'The config trains by epochs: give it an IterBasedTrainLoop with '
            'max_iters, so that every objective gets the same iterations.'
        )
    losses = {n: parse_objective(text) for n, text in objectives.items()}
    losses = json.loads(json.dumps(losses))  # as they are read again
    start = init or cfg.get('load_from') or ''
    inits = {seed: start.replace('{seed}', str(seed)) for seed in seeds}
    starts = {seed: describe_start(inits[seed]) for seed in seeds}
    common = describe(cfg)
    command = f'{Path(sys.argv[0]).name} {shlex.join(sys.argv[1:])}'
    out.mkdir(parents=True, exist_ok=True)
    undone: dict[Path, str] = {}
    with FileLock(out / 'lock'):
        _keep(out / CONFIG_FILE, cfg.pretty_text)
        _keep(out / COMMON_FILE, json.dumps(common, indent=1))
        known = {(r.name, r.seed): r for r in read_comparison(out).runs}
        for run in known.values():
            if losses.get(run.name, run.losses) != run.losses:
                raise _other(f'another objective called {run.name}')
            if starts.get(run.seed, run.start) != run.start:
                raise _other(f'another start, {run.start or "no checkpoint"}')
        # Seed by seed, so that a comparison cut short is still a fair one.
        for seed, name in product(seeds, objectives):
            folder = run_folder(out, name, seed)
            settings = objectives[name], losses[name], starts[seed]
            new = Run(len(known), name, seed, *settings, command)
            run = known.setdefault((name, seed), new)
            if run is new:
                write_run(run, folder)
            if not run.is_done(fit_offsets):
                undone[folder] = inits[seed]
    total = len(objectives) * len(seeds)
    _say(
        f'{total} training runs of {common["iterations"]:,} iterations: '
        f'{", ".join(objectives)}, each with {len(seeds)} seed(s), {jobs} at '
        f'a time, from {start or "the initialisation of the config"}; '
        f'{total - len(undone)} are done already.'
    )
    return run_all(undone, common['iterations'], jobs, fit_offsets)


def _keep(path: Path, text: str) -> None:
    """Write a file of the comparison, or raise if it says something else."""
    if path.exists() and path.read_text('utf-8') != text:
        raise _other('other settings or labels')
    atomic_write_text(path, text)


def _other(what: str) -> SettingError:
    return SettingError(
        f'The folder holds a comparison with {what}: choose another --out, or '
        'remove that folder to begin again.'
    )


def describe_start(path: str) -> str | None:
    """Name and hash of a checkpoint, or the address of a remote one."""
    if not path or '://' in path:
        return path or None
    if not Path(path).is_file():
        raise MissingFileError(
            f'The checkpoint {path} to start from is missing: check --init.'
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
    undone: dict[Path, str], iterations: int, jobs: int, fit: bool
) -> list[str]:
    """Carry out runs, given by their folders; return those that failed."""
    waiting, failures = list(undone), []
    untrained = sum(not read_run(folder).is_done() for folder in undone)
    is_estimated = not untrained
    running: dict[Path, subprocess.Popen] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                folder = waiting.pop(0)
                running[folder] = _start(folder, undone[folder], fit, jobs)
            time.sleep(POLL_SECONDS)
            for folder, process in [*running.items()]:
                seconds = folder / SECONDS_FILE
                if not is_estimated and seconds.exists():
                    is_estimated = True
                    seconds_each = float(seconds.read_text('utf-8'))
                    total = seconds_each * iterations * untrained / jobs
                    _say(
                        f'An iteration takes {seconds_each:.2g} s, all of '
                        f'them about {timedelta(seconds=round(total))} '
                        'h:mm:ss, to which start-up and tests are added.'
                    )
                if (code := process.poll()) is not None:
                    del running[folder]
                    run = read_run(folder)
                    _say(f'{run}: {_outcome(run, fit, code)}')
                    if not run.is_done(fit):
                        log = folder / LOG_FILE
                        failures.append(f'{run} (the log is {log})')
    finally:
        for process in running.values():
            process.terminate()
            process.wait()
    return failures


def _say(text: str) -> None:
    print('\n'.join(map(printable, text.splitlines())), flush=True)


def _outcome(run: Run, fit: bool, code: int) -> str:
    if not run.is_done(fit):
        return f'failed, {run.error or f"exit code {code}"}'
    text = f'mIoU {run.metrics["mIoU"]:.2f}'
    if run.fitted:
        text += f', {run.fitted["metrics"]["mIoU"]:.2f} with fitted offsets'
    return text


def _start(folder: Path, init: str, fit: bool, jobs: int) -> subprocess.Popen:
    program = [sys.executable, '-m', 'mmseg_margin.comparison.training']
    arguments = [str(folder), init] + ['--fit-offsets'] * fit
    # A fraction of the cores each, unless the variable is set already.
    threads = str(max(1, torch.get_num_threads() // jobs))
    with open(folder / LOG_FILE, 'ab') as log:
        return subprocess.Popen(
            program + arguments,
            env={'OMP_NUM_THREADS': threads, **os.environ},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
