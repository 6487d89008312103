"""Trains a config under several objectives: behind ``compare``.

Each run has a process of its own, several of which are at work at a time.
"""

import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import mmengine
import mmseg
import numpy as np
import torch
from filelock import FileLock
from mmengine.config import Config
from mmengine.registry import init_default_scope
from rich.progress import MofNCompleteColumn, Progress

from mmseg_margin import version
from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.errors import MarginError, MissingFileError, SettingError
from mmseg_margin.losses.margin_calibration_loss import expand_preset
from mmseg_margin.losses.objectives import parse_objective
from mmseg_margin.stats import StatsCache, check_labels
from mmseg_margin.stats.scan import available_cores

from . import runs
from .runs import FITTED, Run, read_run, run_folder
from .training import CONFIG_FILE, CURVES_FILE, run_config

# NAME=objective; the settings of an objective come after a colon.
NAMED = re.compile(r'(?P<name>[^:=+]+)=(?P<objective>.+)', re.DOTALL)
# A sentence of our own, a problem of the label check, the end of a traceback.
ERROR_LINE = re.compile(
    r'^(?:error: |\[problem\] )(.+)'
    r'|^([\w.]+(?:Error|Exception|Interrupt)\b.*)',
    re.MULTILINE,
)
LOG_FILE = 'log.txt'
POLL_SECONDS = 0.5
REMEDY = 'choose another --out, or remove that folder to begin again.'
# What a process does, with the folder of its run as an argument. With -m the
# module would be loaded twice, and its hook and metric registered twice.
PROCESS = f'import {__package__}.training as t; t.main_of_process()'


class RunFailedError(MarginError):
    """A run ended without a record; the message names its log."""


def named_objectives(texts: list[str]) -> dict[str, str]:
    """Objectives by the name that a user gave them, or by themselves.

    Example:
        >>> named_objectives(['ce', 'strong=margin:tau=20', 'margin:tau=5'])
        {'ce': 'ce', 'strong': 'margin:tau=20', 'margin:tau=5': 'margin:tau=5'}
    """
    objectives: dict[str, str] = {}
    for text in texts:
        match = NAMED.fullmatch(text)
        name, objective = match.groups() if match else (text, text)
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
    """
    for flag, number in (('--seeds', len(seeds)), ('--jobs', jobs)):
        if number < 1:
            raise SettingError(f'{flag} must be 1 or more.')
    common = describe(cfg, init)
    path, text = out / 'config.py', cfg.pretty_text
    if path.exists() and path.read_text('utf-8') != text:
        raise SettingError(
            f'{path} is from a comparison with other settings: {REMEDY}'
        )
    # In full, because a preset may mean something else in a later version.
    losses = {
        name: [expand_preset(term) for term in parse_objective(objective)]
        for name, objective in objectives.items()
    }
    out.mkdir(parents=True, exist_ok=True)
    atomic_write_text(path, text)
    folders = []
    with FileLock(out / 'lock'):
        known = {(run.name, run.seed): run for run in runs.read_runs(out)}
        for run in known.values():
            for key in runs.COMMON:
                if vars(run)[key] != common[key]:
                    raise _another(key)
            if losses.get(run.name, run.losses) != run.losses:
                raise _another(f'objective called {run.name}')
        # Seed by seed, so that a comparison cut short is still a fair one.
        for seed, name in product(seeds, objectives):
            objective, terms = objectives[name], losses[name]
            run = Run(len(known), name, seed, objective, terms, **common)
            run = known.setdefault((name, seed), run)
            start = init and init.replace('{seed}', str(seed))
            folders.append(run_folder(out, name, seed))
            _begin(cfg, run, folders[-1], start, predict=seed == seeds[0])
    run_all(folders, common['iterations'], jobs, fit_offsets)


def _another(what: str) -> SettingError:
    return SettingError(
        f'The folder holds a comparison with another {what}: {REMEDY}'
    )


def describe(cfg: Config, init: str | None) -> dict[str, Any]:
    """What runs of a config have in common; the labels are checked too."""
    if 'max_iters' not in cfg.train_cfg:
        raise SettingError(
            'The config trains by epochs: give it an IterBasedTrainLoop with '
            'max_iters, so that every objective gets the same iterations.'
        )
    init_default_scope(cfg.get('default_scope', 'mmseg'))
    report = check_labels(
        cfg.train_dataloader.dataset, cfg.model, StatsCache()
    )
    report.raise_errors()
    metainfo = report.dataset.metainfo
    packages = (torch, mmseg, mmengine, np)
    return dict(
        config=Path(cfg.filename).name,
        iterations=cfg.train_cfg.max_iters,
        init=Path(init).name if init else None,
        classes=list(metainfo['classes']),
        palette=[list(colour) for colour in metainfo['palette']],
        class_counts=list(report.stats.counts),
        versions={
            'python': platform.python_version(),
            **{package.__name__: package.__version__ for package in packages},
            'mmseg_margin': version.__version__,
        },
        command=f'{Path(sys.argv[0]).name} {shlex.join(sys.argv[1:])}',
    )


def _begin(
    cfg: Config, run: Run, folder: Path, start: str | None, predict: bool
) -> None:
    """Write the config and the record of a run, unless it has begun."""
    path = folder / CONFIG_FILE
    if not path.exists():
        whole = run_config(
            cfg, run.objective, run.seed, folder, start, run.class_counts
        )
        if start and '://' not in start and not Path(start).is_file():
            raise MissingFileError(
                f'The checkpoint {start} of --init does not exist: give the '
                'path to a .pth file, in which {seed} may stand for the seed.'
            )
        if predict:
            whole.test_evaluator.output_dir = str(folder / runs.PREDICTIONS)
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write_text(path, whole.pretty_text)
    elif not run.is_done() and Config.fromfile(path).load_from != start:
        raise _another('init')
    if not (folder / runs.RECORD_FILE).exists():
        runs.write_run(run, folder)


def run_all(
    folders: list[Path], iterations: int, jobs: int, fit: bool = False
) -> None:
    """Do all runs that are not done, with one progress bar over all.

    Raises:
        RunFailedError: After all other runs, so that no work is lost.
    """
    waiting = [each for each in folders if not read_run(each).is_done(fit)]
    done = (len(folders) - len(waiting)) * iterations
    running: dict[int, tuple[Path, subprocess.Popen, int]] = {}
    failures = []
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with Progress(*columns, refresh_per_second=1) as progress:
        bar = progress.add_task('iterations', total=len(folders) * iterations)
        try:
            while waiting or running:
                for slot in set(range(jobs)) - running.keys():
                    if waiting:
                        folder = waiting.pop(0)
                        started = _start(folder, slot, jobs, fit)
                        running[slot] = folder, *started
                time.sleep(POLL_SECONDS)
                for slot, (folder, process, begin) in [*running.items()]:
                    if (code := process.poll()) is None:
                        continue
                    del running[slot]
                    done += iterations
                    run, log = read_run(folder), folder / LOG_FILE
                    if run.is_done(fit):
                        outcome = f'mIoU {run.metrics["mIoU"]:.2f}'
                        if better := run.figures.get(f'{FITTED}mIoU'):
                            outcome += f', {better:.2f} with fitted offsets'
                    else:
                        cause = cause_of_failure(log, begin, code)
                        failures.append(f'{run}: see {log} ({cause})')
                        outcome = f'failed, see {log} ({cause})'
                    progress.console.print(f'{run}: {outcome}', markup=False)
                begun = sum(_iterations_of(f) for f, *_ in running.values())
                progress.update(bar, completed=done + begun)
        finally:
            for _, process, _ in running.values():
                process.terminate()
                process.wait()
    if failures:
        raise RunFailedError(
            f'{len(failures)} of {len(folders)} runs failed, the first of '
            f'them {failures[0]}, correct the cause and give the same '
            'command again; the other results are kept.'
        )


def cause_of_failure(log: Path, begin: int, code: int) -> str:
    """The last error in a log from a byte on, or else the exit code."""
    text = log.read_bytes()[begin:].decode('utf-8', 'replace')
    errors = [''.join(each) for each in ERROR_LINE.findall(text)]
    return errors[-1] if errors else f'no error in it, exit code {code}'


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


def _start(
    folder: Path, slot: int, jobs: int, fit: bool
) -> tuple[subprocess.Popen, int]:
    """The process of a run, and where what it logs begins."""
    with open(folder / LOG_FILE, 'ab') as log:
        begin = log.tell()
        process = subprocess.Popen(
            [sys.executable, '-c', PROCESS, folder, *['--fit-offsets'] * fit],
            env=environment_of(slot, jobs),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        return process, begin


def _iterations_of(folder: Path) -> int:
    """As many as the curves of a run have come to."""
    with suppress(OSError, ValueError):
        curves = json.loads((folder / CURVES_FILE).read_text('utf-8'))
        return max(points[-1][0] for points in curves.values())
    return 0
