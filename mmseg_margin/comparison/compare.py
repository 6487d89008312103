"""From a config to a report: everything behind ``tools/compare.py``."""

import platform
import shlex
import sys
from pathlib import Path

import mmengine
import mmseg
import numpy as np
import torch
from mmengine.config import Config
from mmengine.registry import init_default_scope

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.errors import SettingError
from mmseg_margin.losses.objectives import terms_of
from mmseg_margin.stats import StatsCache, check_labels
from mmseg_margin.version import __version__

from .conduct import conduct
from .plan import plan_runs, run_config, training_iterations
from .results import (
    STUDY_FILE,
    Study,
    write_record,
)
from .run import CONFIG_FILE


def compare(
    cfg: Config,
    losses: list[str],
    seeds: list[int],
    out: Path,
    init: str | None = None,
    jobs: int = 1,
) -> Study:
    """Train and test every objective with every seed.

    What has been done before in the same folder is not done again.
    """
    study = make_study(cfg, losses, seeds, init)
    runs = plan_runs(out, losses, seeds)
    for run in runs:
        complete = run_config(
            cfg, run, init, study.class_counts, run.seed == seeds[0]
        )
        _write_config(complete, run.folder / CONFIG_FILE)
    write_record(study, out / STUDY_FILE)
    conduct(runs, study.iterations, jobs)
    return study


def make_study(
    cfg: Config, losses: list[str], seeds: list[int], init: str | None
) -> Study:
    """What all runs have in common; the labels are checked on the way."""
    init_default_scope(cfg.get('default_scope', 'mmseg'))
    report = check_labels(
        cfg.train_dataloader.dataset, cfg.model, StatsCache()
    )
    report.raise_errors()
    metainfo = report.dataset.metainfo
    return Study(
        config=Path(cfg.filename).name,
        losses={objective: terms_of(objective) for objective in losses},
        seeds=seeds,
        iterations=training_iterations(cfg),
        init=Path(init).name if init else None,
        classes=list(metainfo['classes']),
        palette=[list(colour) for colour in metainfo['palette']],
        class_counts=list(report.stats.counts),
        versions=_versions(),
        command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
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


def _write_config(cfg: Config, path: Path) -> None:
    """Keep a run's config; one that differs belongs to another comparison."""
    text = cfg.pretty_text
    if path.exists() and path.read_text('utf-8') != text:
        raise SettingError(
            f'{path} is from a comparison with other settings: choose '
            'another --out, or remove that folder to do the run again.'
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_text(path, text)
