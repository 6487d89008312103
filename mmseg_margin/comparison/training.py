"""Carries out one run: ``python -m mmseg_margin.comparison.training FOLDER``.

A run has a process of its own, so that memory is measured for one objective
at a time and a failure leaves the other runs alone. Its standard input is a
pipe from the comparison, which closes when the comparison ends.
"""

import copy
import os
import resource
import sys
import threading
from dataclasses import replace
from numbers import Real
from pathlib import Path
from statistics import median
from typing import Any

import torch
from filelock import FileLock
from mmengine.config import Config, ConfigDict
from mmengine.runner import Runner

from mmseg_margin.checkpoints import newest_whole_checkpoint
from mmseg_margin.config_tools import add_hook, add_import, leaf_datasets
from mmseg_margin.errors import MissingFileError, SettingError
from mmseg_margin.losses.objectives import Objective
from mmseg_margin.losses.swap import set_objective
from mmseg_margin.tooling import flags
from mmseg_margin.tooling.cli import report_errors
from mmseg_margin.tooling.launch import build_runner, prepare_for_device

from .curves import CurvesHook, OnPoint
from .runs import FITTED_PREDICTIONS, RECORD_FILE, read_run, write_run

CONFIG_FILE = 'run.py'
FITTED_CHECKPOINT = 'fitted_offsets.pth'
# Each point of the curves costs two tests on so many images.
CURVE_POINTS, CURVE_IMAGES = 5, 10
CHECKPOINTS = 10


def run_config(
    base: Config,
    objective: Objective,
    seed: int,
    folder: Path,
    start: str | None,
    class_counts: list[int],
) -> Config:
    """The config of a run, which differs in objective and seed alone."""
    cfg = copy.deepcopy(base)
    set_objective(cfg, objective)
    add_hook(cfg, 'FusedLossHook')
    add_hook(cfg, 'ExactResumeHook')
    iterations = training_iterations(cfg)
    val = (cfg.get('val_dataloader') or cfg.test_dataloader).dataset
    train = copy.deepcopy(cfg.train_dataloader.dataset)
    for leaf in leaf_datasets(train):
        leaf.pipeline = leaf_datasets(val)[0].pipeline
    add_hook(
        cfg,
        'CurvesHook',
        datasets=ConfigDict(train=train, val=val),
        interval=max(1, iterations // CURVE_POINTS),
        images=CURVE_IMAGES,
    )
    # Registers CurvesHook and ClassIoUMetric.
    add_import(cfg, 'mmseg_margin.comparison')
    flags.without_validation(cfg)
    cfg.work_dir = str(folder)
    cfg.load_from = start
    cfg.randomness = ConfigDict(seed=seed)
    cfg.default_hooks.checkpoint = ConfigDict(
        type='CheckpointHook',
        by_epoch=False,
        interval=max(1, iterations // CHECKPOINTS),
        # mmengine removes the old one before it writes the new one.
        max_keep_ckpts=2,
    )
    cfg.test_evaluator = ConfigDict(
        type='ClassIoUMetric', iou_metrics=['mIoU'], class_counts=class_counts
    )
    return cfg


def training_iterations(cfg: Config) -> int:
    iterations = cfg.train_cfg.get('max_iters')
    if iterations is None:
        raise SettingError(
            'The config trains by epochs: give it an IterBasedTrainLoop with '
            'max_iters, so that every objective gets the same iterations.'
        )
    return iterations


def train_and_test(
    cfg: Config, on_point: OnPoint | None = None
) -> dict[str, Any]:
    """Train from the last checkpoint, if any, and test: figures of a run."""
    checkpoint = newest_whole_checkpoint(cfg.work_dir)
    if checkpoint:
        cfg.resume, cfg.load_from = True, checkpoint
    prepare_for_device(cfg)
    runner = build_runner(cfg)
    curves = next(h for h in runner.hooks if isinstance(h, CurvesHook))
    curves.on_point = on_point
    runner.train()
    return _test(runner) | {
        'curves': curves.curves,
        'seconds': median(curves.seconds) if curves.seconds else None,
        'memory': _peak_memory() / 2**20,
    }


def fit_offsets(cfg: Config, checkpoint: str, out: Path) -> list[float]:
    """Fit class offsets on training images; write the checkpoint to out."""
    from mmseg_margin.offsets import fit_checkpoint

    cfg = copy.deepcopy(cfg)
    # The fit predicts its images as in a validation.
    cfg.val_dataloader, cfg.val_cfg = cfg.test_dataloader, dict(type='ValLoop')
    cfg.val_evaluator = dict(type='IoUMetric')
    prepare_for_device(cfg)
    return fit_checkpoint(
        build_runner(cfg), checkpoint, out, force=True
    ).offsets


def measure_fitted(cfg: Config) -> dict[str, Any]:
    """Fit the offsets of a finished training, and test once more."""
    folder = Path(cfg.work_dir)
    checkpoint = newest_whole_checkpoint(cfg.work_dir)
    if checkpoint is None:
        raise MissingFileError(
            f'{folder} has no checkpoint to fit offsets to: remove its '
            f'{RECORD_FILE} and give the same command again to train anew.'
        )
    cfg.load_from, cfg.resume = str(folder / FITTED_CHECKPOINT), False
    offsets = fit_offsets(cfg, checkpoint, Path(cfg.load_from))
    if 'output_dir' in cfg.test_evaluator:
        cfg.test_evaluator.output_dir = str(folder / FITTED_PREDICTIONS)
    # mmengine keeps loggers and message hubs by this name.
    cfg.experiment_name = 'fitted-offsets'
    prepare_for_device(cfg)
    return {'offsets': offsets, **_test(build_runner(cfg))}


def _test(runner: Runner) -> dict[str, Any]:
    metrics = runner.test()
    (metric,) = runner.test_loop.evaluator.metrics
    return {
        'metrics': {
            name: float(value)
            for name, value in metrics.items()
            # The IoU of each class is kept once.
            if isinstance(value, Real) and '/' not in name
        },
        'class_iou': metric.class_iou,
    }


def _peak_memory() -> int:
    """Bytes: of the GPU if there is one, or of the process."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    # Linux counts kibibytes, macOS bytes.
    unit = 1 if sys.platform == 'darwin' else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _end_with_comparison() -> None:
    # Not through sys.stdin, whose lock would be held when Python shuts down.
    os.read(0, 1)
    # Two processes in one folder would spoil each other's files.
    os._exit(1)


@report_errors
def main(folder: Path, fit: bool) -> None:
    """Do what is left to do of the run whose config is in a folder."""
    # Two comparisons may be at work in one folder.
    with FileLock(folder / 'lock'):
        run = read_run(folder)
        if not run.is_done():
            figures = train_and_test(Config.fromfile(folder / CONFIG_FILE))
            run = replace(run, **figures)
            write_run(run, folder)
        if not run.is_done(fit):
            cfg = Config.fromfile(folder / CONFIG_FILE)
            fitted = measure_fitted(cfg)
            write_run(replace(run, fitted=fitted), folder)


if __name__ == '__main__':
    threading.Thread(target=_end_with_comparison, daemon=True).start()
    main(Path(sys.argv[1]), '--fit-offsets' in sys.argv)
