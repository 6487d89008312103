"""Carries out one run, in a process of its own: trains, tests and fits.

Its arguments, given by ``compare``, are FOLDER INIT [--fit-offsets].
"""

import copy
import json
import platform
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import mmengine
import mmseg
import numpy as np
import torch
from filelock import FileLock
from mmengine.config import Config, ConfigDict
from mmengine.runner import find_latest_checkpoint
from mmseg.evaluation import IoUMetric
from mmseg.registry import METRICS

import mmseg_margin
from mmseg_margin import config_tools
from mmseg_margin.compat import apply_patches
from mmseg_margin.losses.swap import set_objective
from mmseg_margin.offsets import fit_checkpoint
from mmseg_margin.tooling.launch import (
    build_runner,
    prepare_for_device,
    without_validation,
)

from .curves import CurvesHook
from .records import (
    COMMON_FILE,
    CONFIG_FILE,
    PREDICTIONS,
    Run,
    read_run,
    write_run,
)

CHECKPOINTS = 10
# Points of a curve, if the config validates once or not at all.
CURVE_POINTS = 5
CURVE_IMAGES, FIT_IMAGES = 10, 300
# A short training gets fewer images, so that curves and fit never take longer
# than its iterations.
ITERATIONS_PER_CURVE_IMAGE, ITERATIONS_PER_FIT_IMAGE = 4, 2
# Settings of the config's IoU metric that do not concern the measurement.
NOT_KEPT = ('type', 'class_counts', 'format_only', 'output_dir', 'prefix')


def carry_out(folder: Path, init: str, fit: bool) -> None:
    """Do what is left to do of a run.

    Args:
        folder: That of the run, inside the folder of its comparison.
        init: The checkpoint to start from; empty for the config's own start.
        fit: Whether to measure with fitted offsets as well.
    """
    # Another comparison, or a process whose comparison was killed, may be
    # carrying out the same run.
    with FileLock(folder / 'lock'):
        run, out = replace(read_run(folder), error=None), folder.parents[2]
        write_run(run, folder)
        # Formatting a config for the log and every checkpoint takes seconds.
        base = Config.fromfile(out / CONFIG_FILE, format_python_code=False)
        common = json.loads((out / COMMON_FILE).read_text('utf-8'))
        cfg = run_config(base, run, common['class_counts'], folder)
        if not run.is_done():
            run = train_and_test(copy.deepcopy(cfg), run, folder, init)
        if not run.is_done(fit):
            fitted = measure_fitted(cfg, folder)
            write_run(replace(run, fitted=fitted), folder)


def run_config(
    base: Config, run: Run, class_counts: list[int], folder: Path
) -> Config:
    """The config of a run, which differs in objective and seed alone."""
    cfg = copy.deepcopy(base)
    set_objective(cfg, run.losses)
    config_tools.add_hook(cfg, 'FusedLossHook')
    iterations = cfg.train_cfg.max_iters
    evaluator = iou_evaluator(cfg, class_counts)
    val = (cfg.get('val_dataloader') or cfg.test_dataloader).dataset
    train = copy.deepcopy(cfg.train_dataloader.dataset)
    for leaf in config_tools.leaf_datasets(train):
        leaf.pipeline = config_tools.leaf_datasets(val)[0].pipeline
    interval = cfg.train_cfg.get('val_interval') or iterations
    if 2 * interval > iterations:
        interval = max(1, iterations // CURVE_POINTS)
    images = interval // ITERATIONS_PER_CURVE_IMAGE
    config_tools.add_hook(
        cfg,
        'CurvesHook',
        datasets=ConfigDict(train=train, val=val),
        evaluator=copy.deepcopy(evaluator),
        interval=interval,
        images=max(1, min(CURVE_IMAGES, images)),
    )
    # Registers CurvesHook and ClassIoUMetric.
    config_tools.add_import(cfg, 'mmseg_margin.comparison.curves')
    without_validation(cfg)
    cfg.work_dir = str(folder)
    cfg.resume = False
    cfg.randomness = ConfigDict(seed=run.seed)
    cfg.default_hooks.checkpoint = ConfigDict(
        type='CheckpointHook',
        by_epoch=False,
        interval=max(1, iterations // CHECKPOINTS),
        # mmengine removes the old one before it writes the new one.
        max_keep_ckpts=2,
    )
    if run.seed == 0:  # for the examples in the report
        evaluator.output_dir = str(folder / PREDICTIONS)
    cfg.test_evaluator = evaluator
    return cfg


def iou_evaluator(cfg: Config, class_counts: list[int]) -> ConfigDict:
    """Our metric with all settings of the config's IoU metric."""
    settings: dict[str, Any] = {}
    for key in ('val_evaluator', 'test_evaluator'):
        for metric in config_tools.as_list(cfg.get(key)):
            kind = metric['type']
            kind = METRICS.get(kind) if isinstance(kind, str) else kind
            if kind is not None and issubclass(kind, IoUMetric):
                settings = {k: metric[k] for k in metric if k not in NOT_KEPT}
    others = config_tools.as_list(settings.pop('iou_metrics', None))
    return ConfigDict(
        type='ClassIoUMetric',
        iou_metrics=list(dict.fromkeys(['mIoU', *others])),
        class_counts=class_counts,
        **settings,
    )


def last_checkpoint(folder: Path) -> Path:
    """The checkpoint to go on with; the folder may have been copied."""
    found = find_latest_checkpoint(str(folder)) or 'no checkpoint'
    return folder / Path(found).name


def train_and_test(cfg: Config, run: Run, folder: Path, init: str) -> Run:
    """Train, from the last checkpoint if there is one, and test."""
    run = replace(run, versions=versions())
    if init:
        cfg.load_from = init
    checkpoint = last_checkpoint(folder)
    if checkpoint.is_file():
        cfg.resume, cfg.load_from = True, str(checkpoint)
        iteration = int(checkpoint.stem.rpartition('_')[2])
        if iteration < cfg.train_cfg.max_iters:
            run = replace(run, resumed=[*run.resumed, iteration])
            write_run(run, folder)
    prepare_for_device(cfg)
    runner = build_runner(cfg, is_verbose=True)
    runner.train()
    curves = next(h for h in runner.hooks if isinstance(h, CurvesHook))
    metrics = runner.test()
    (metric,) = runner.test_loop.evaluator.metrics
    run = replace(
        run,
        # The IoU of each class is kept once.
        metrics={k: float(v) for k, v in metrics.items() if '/' not in k},
        class_iou=_without_nan(metric.class_iou),
        predicted=metric.predicted,
        curves=curves.curves,
        seconds=median(curves.seconds) if curves.seconds else None,
    )
    write_run(run, folder)
    return run


def measure_fitted(cfg: Config, folder: Path) -> dict[str, Any]:
    """Fit offsets to a finished run, and measure on the test split again."""
    # The fit predicts and measures its images as in a validation.
    cfg.val_dataloader, cfg.val_cfg = cfg.test_dataloader, dict(type='ValLoop')
    cfg.val_evaluator = cfg.test_evaluator
    # mmengine keeps loggers by this name.
    cfg.experiment_name = f'{folder.name}-fitted-offsets'
    prepare_for_device(cfg)
    images = cfg.train_cfg.max_iters // ITERATIONS_PER_FIT_IMAGE
    fitted = fit_checkpoint(
        build_runner(cfg, is_verbose=True),
        str(last_checkpoint(folder)),
        folder / 'fitted_offsets.pth',
        max(1, min(FIT_IMAGES, images)),
        force=True,
    )
    iou, settings = np.array(fitted.after.classes), cfg.val_evaluator
    if settings.get('nan_to_num') is not None:
        iou = np.nan_to_num(iou, nan=100 * settings.nan_to_num)
    metrics = {'aAcc': fitted.after.accuracy, 'mIoU': np.nanmean(iou)}
    return {
        'offsets': fitted.offsets,
        # Rounded as those of the test are.
        'metrics': {k: round(float(v), 2) for k, v in metrics.items()},
        'class_iou': _without_nan(iou),
    }


def _without_nan(values: np.ndarray) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]


def versions() -> dict[str, str]:
    packages = (torch, mmseg, mmengine, np, mmseg_margin)
    found = {package.__name__: package.__version__ for package in packages}
    return {'python': platform.python_version(), **found}


def main() -> None:
    folder, init = Path(sys.argv[1]), sys.argv[2]

    def record_error(kind: type, error: Any, traceback: Any) -> None:
        text = f'{kind.__name__}: {error}'
        write_run(replace(read_run(folder), error=text), folder)
        sys.__excepthook__(kind, error, traceback)

    sys.excepthook = record_error
    apply_patches()
    carry_out(folder, init, fit='--fit-offsets' in sys.argv)


if __name__ == '__main__':
    main()
