"""From a config to its results: everything behind ``tools/compare.py``."""

import platform
import re
import shlex
import sys
from pathlib import Path

import mmengine
import mmseg
import numpy as np
import torch
from filelock import FileLock
from mmengine.config import Config
from mmengine.registry import init_default_scope

from mmseg_margin import version
from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.errors import SettingError
from mmseg_margin.losses.objectives import parse_objective
from mmseg_margin.losses.presets import written_out
from mmseg_margin.stats import StatsCache, check_labels

from .jobs import run_all
from .records import (
    PREDICTIONS,
    SETUP_FILE,
    Setup,
    read_json,
    run_folder,
    write_record,
)
from .runs import CONFIG_FILE, Run, run_config, training_iterations

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
) -> None:
    """Train and test every objective with every seed.

    What has been done before in the same folder is not done again, and
    objectives and seeds can be added to it. In the checkpoint to start from,
    ``init``, ``{seed}`` is replaced.
    """
    for flag, number in (('--seeds', len(seeds)), ('--jobs', jobs)):
        if number < 1:
            raise SettingError(f'{flag} must be 1 or more.')
    setup = make_setup(cfg, objectives, seeds, init)
    _keep_config(cfg, out / 'config.py')
    with FileLock(out / 'lock'):
        if (out / SETUP_FILE).exists():
            setup = Setup(**read_json(out / SETUP_FILE)).with_more(setup)
        write_record(setup, out / SETUP_FILE)
    # Seed by seed, so that a comparison cut short is still a fair one.
    runs = [
        Run(name, objective, seed, run_folder(out, name, seed))
        for seed in seeds
        for name, objective in objectives.items()
    ]
    for run in runs:
        if run.is_done:
            continue
        whole = run_config(cfg, run, init, setup.class_counts)
        if run.seed == seeds[0]:
            whole.test_evaluator.output_dir = str(run.folder / PREDICTIONS)
        path = run.folder / CONFIG_FILE
        # What an earlier version has begun goes on as it is.
        if not path.exists() or (
            Config.fromfile(path).load_from != whole.load_from
        ):
            _keep_config(whole, path)
    run_all(runs, setup.iterations, jobs)


def make_setup(
    cfg: Config, objectives: dict[str, str], seeds: list[int], init: str | None
) -> Setup:
    """What all runs have in common; the labels are checked on the way."""
    # What a preset means may change before the comparison is gone on with.
    losses = {
        name: [written_out(term) for term in parse_objective(objective)]
        for name, objective in objectives.items()
    }
    init_default_scope(cfg.get('default_scope', 'mmseg'))
    report = check_labels(
        cfg.train_dataloader.dataset, cfg.model, StatsCache()
    )
    report.raise_errors()
    metainfo = report.dataset.metainfo
    packages = (torch, mmseg, mmengine, np)
    return Setup(
        config=Path(cfg.filename).name,
        objectives=objectives,
        losses=losses,
        seeds=dict.fromkeys(objectives, seeds),
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
        commands=[shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])],
    )


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
