"""Trains a config under several objectives: behind ``tools/compare.py``."""

import platform
import re
import shlex
import sys
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

from mmseg_margin import version
from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.errors import MissingFileError, SettingError
from mmseg_margin.losses.margin_calibration_loss import expand_preset
from mmseg_margin.losses.objectives import parse_objective
from mmseg_margin.stats import StatsCache, check_labels

from .processes import run_all
from .records import (
    COMMON,
    PREDICTIONS,
    RECORD_FILE,
    Run,
    run_folder,
    write_run,
)
from .results import read_runs
from .training import CONFIG_FILE, run_config, training_iterations

# NAME=objective; the settings of an objective come after a colon.
NAMED = re.compile(r'(?P<name>[^:=+]+)=(?P<objective>.+)', re.DOTALL)


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
    _keep_config(cfg, out / 'config.py')
    # In full, because a preset may mean something else in a later version.
    losses = {
        name: [expand_preset(term) for term in parse_objective(objective)]
        for name, objective in objectives.items()
    }
    folders = []
    with FileLock(out / 'lock'):
        known = {(run.name, run.seed): run for run in read_runs(out)}
        # Seed by seed, so that a comparison cut short is still a fair one.
        for seed, name in product(seeds, objectives):
            objective, terms = objectives[name], losses[name]
            run = Run(len(known), name, seed, objective, terms, **common)
            _check_fits(run, known)
            folders.append(run_folder(out, name, seed))
            run = known.setdefault((name, seed), run)
            start = init and init.replace('{seed}', str(seed))
            _begin(cfg, run, folders[-1], start, predict=seed == seeds[0])
    run_all(folders, common['iterations'], jobs, fit_offsets)


def describe(cfg: Config, init: str | None) -> dict[str, Any]:
    """What runs of a config have in common; the labels are checked too."""
    init_default_scope(cfg.get('default_scope', 'mmseg'))
    report = check_labels(
        cfg.train_dataloader.dataset, cfg.model, StatsCache()
    )
    report.raise_errors()
    metainfo = report.dataset.metainfo
    packages = (torch, mmseg, mmengine, np)
    return dict(
        config=Path(cfg.filename).name,
        iterations=training_iterations(cfg),
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


def _check_fits(run: Run, known: dict[tuple[str, int], Run]) -> None:
    """Raise if a run would not fit into a comparison."""
    for other in known.values():
        different = [k for k in COMMON if vars(run)[k] != vars(other)[k]]
        if run.name == other.name and run.losses != other.losses:
            different.append(f'objective called {run.name}')
        if different:
            raise _another(different[0])


def _another(what: str) -> SettingError:
    return SettingError(
        f'The folder holds a comparison with another {what}: choose another '
        '--out, or remove that folder to begin again.'
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
            whole.test_evaluator.output_dir = str(folder / PREDICTIONS)
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write_text(path, whole.pretty_text)
    elif not run.is_done() and Config.fromfile(path).load_from != start:
        raise _another('init')
    if not (folder / RECORD_FILE).exists():
        write_run(run, folder)


def _keep_config(cfg: Config, path: Path) -> None:
    """Write a config; one that differs belongs to another comparison."""
    text = cfg.pretty_text
    if path.exists() and path.read_text('utf-8') != text:
        raise SettingError(
            f'{path} is from a comparison with other settings: choose '
            'another --out, or remove that folder to begin again.'
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_text(path, text)
