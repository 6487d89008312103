"""From a config to its results: everything behind ``tools/compare.py``."""

import platform
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

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.errors import SettingError
from mmseg_margin.losses.objectives import terms_of
from mmseg_margin.losses.presets import written_out
from mmseg_margin.stats import StatsCache, check_labels
from mmseg_margin.version import __version__

from .jobs import is_done, run_all
from .one_run import CONFIG_FILE
from .records import SETUP_FILE, Setup, read_record, run_folder, write_record
from .runs import Run, run_config, training_iterations

BASE_CONFIG_FILE = 'config.py'


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
    objectives and seeds can be added to it.

    Args:
        cfg: The config that all runs have in common.
        objectives: What ``--loss`` takes, by the names of the runs.
        seeds: Of the weights, the data order and the augmentation.
        out: The folder of everything.
        init: Checkpoint to start from; ``{seed}`` in it is replaced.
        jobs: Runs at the same time.
    """
    for flag, number in (('--seeds', len(seeds)), ('--jobs', jobs)):
        if number < 1:
            raise SettingError(f'{flag} must be 1 or more.')
    setup = make_setup(cfg, objectives, seeds, init)
    # Seed by seed, so that a comparison cut short is still a fair one.
    runs = [
        Run(name, objective, seed, run_folder(out, name, seed))
        for seed in seeds
        for name, objective in objectives.items()
    ]
    _keep_config(cfg, out / BASE_CONFIG_FILE)
    with FileLock(out / 'lock'):
        if (out / SETUP_FILE).exists():
            setup = read_record(Setup, out / SETUP_FILE).with_more(setup)
        write_record(setup, out / SETUP_FILE)
    for run in runs:
        # What has been done by an earlier version stays as it is.
        if not is_done(run):
            counts, first = setup.class_counts, run.seed == seeds[0]
            whole = run_config(cfg, run, init, counts, keep_predictions=first)
            _keep_config(whole, run.folder / CONFIG_FILE)
    run_all(runs, setup.iterations, jobs)


def make_setup(
    cfg: Config, objectives: dict[str, str], seeds: list[int], init: str | None
) -> Setup:
    """What all runs have in common; the labels are checked on the way."""
    # What a preset means may change before the comparison is gone on with.
    losses = {
        name: [written_out(term) for term in terms_of(objective)]
        for name, objective in objectives.items()
    }
    init_default_scope(cfg.get('default_scope', 'mmseg'))
    report = check_labels(
        cfg.train_dataloader.dataset, cfg.model, StatsCache()
    )
    report.raise_errors()
    metainfo = report.dataset.metainfo
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
        versions=_versions(),
        commands=[shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])],
    )


def _versions() -> dict[str, str]:
    return {
        'python': platform.python_version(),
        'torch': torch.__version__,
        'mmseg': mmseg.__version__,
        'mmengine': mmengine.__version__,
        'numpy': np.__version__,
        'mmseg_margin': __version__,
    }


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
