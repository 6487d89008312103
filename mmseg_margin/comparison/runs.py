"""A run of a comparison: its config, its training, its result."""

import copy
import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from mmengine.config import Config, ConfigDict
from mmengine.hooks import Hook

from mmseg_margin.checkpoints import newest_whole_checkpoint
from mmseg_margin.config_tools import add_hook, add_import, leaf_datasets
from mmseg_margin.errors import SettingError
from mmseg_margin.losses.objectives import Objective
from mmseg_margin.losses.swap import set_objective
from mmseg_margin.tooling import flags
from mmseg_margin.tooling.launch import build_runner, prepare_for_device

from .measures import CurvesHook
from .records import RESULT_FILE, RunResult

CONFIG_FILE = 'run.py'
# Each point costs as much as a test on as many images, twice.
CURVE_POINTS, CURVE_IMAGES = 5, 10
CHECKPOINTS = 10


@dataclass(frozen=True)
class Run:
    """One training of a comparison, in a folder of its own."""

    name: str
    objective: Objective
    seed: int
    folder: Path

    def __str__(self) -> str:
        return f'{self.name}, seed {self.seed}'

    @property
    def is_done(self) -> bool:
        return (self.folder / RESULT_FILE).exists()


def run_config(
    base: Config, run: Run, init: str | None, class_counts: list[int]
) -> Config:
    """The config of one run, which differs in objective and seed alone."""
    cfg = copy.deepcopy(base)
    set_objective(cfg, run.objective)
    add_hook(cfg, 'FusedLossHook')
    cfg.comparison = ConfigDict(name=run.name, seed=run.seed)
    cfg.work_dir = str(run.folder)
    cfg.load_from = init.format(seed=run.seed) if init else None
    cfg.randomness = ConfigDict(seed=run.seed)
    iterations = training_iterations(cfg)
    add_hook(cfg, 'ExactResumeHook')
    add_hook(
        cfg,
        'CurvesHook',
        datasets=_datasets_of_curves(cfg),
        interval=max(1, iterations // CURVE_POINTS),
        images=CURVE_IMAGES,
    )
    # What CurvesHook and the metric are registered by.
    add_import(cfg, 'mmseg_margin.comparison')
    flags.without_validation(cfg)
    cfg.default_hooks.checkpoint = ConfigDict(
        type='CheckpointHook',
        by_epoch=False,
        interval=max(1, iterations // CHECKPOINTS),
        # mmengine removes the old one before it writes the new one.
        max_keep_ckpts=2,
    )
    cfg.test_evaluator = ConfigDict(
        type='ClassIoUMetric',
        iou_metrics=['mIoU'],
        class_counts=class_counts,
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


def _datasets_of_curves(cfg: Config) -> ConfigDict:
    """Training images go through the pipeline of the validation."""
    val = (cfg.get('val_dataloader') or cfg.test_dataloader).dataset
    train = copy.deepcopy(cfg.train_dataloader.dataset)
    for leaf in leaf_datasets(train):
        leaf.pipeline = leaf_datasets(val)[0].pipeline
    return ConfigDict(train=train, val=val)


def train_and_test(cfg: Config, hooks: Sequence[Hook] = ()) -> RunResult:
    """Train from where the work dir is, test, and say how it went."""
    checkpoint = newest_whole_checkpoint(cfg.work_dir)
    if checkpoint:
        cfg.resume, cfg.load_from = True, checkpoint
    prepare_for_device(cfg)
    runner = build_runner(cfg)
    for hook in hooks:
        runner.register_hook(hook)
    runner.train()
    metrics = runner.test()
    (metric,) = runner.test_loop.evaluator.metrics
    curves = next(h for h in runner.hooks if isinstance(h, CurvesHook))
    return RunResult(
        name=cfg.comparison.name,
        seed=cfg.comparison.seed,
        metrics={name: float(value) for name, value in metrics.items()},
        class_iou=metric.class_iou,
        curves=curves.curves,
        seconds_per_iteration=median(curves.seconds or [0.0]),
        peak_memory_mib=_peak_memory() / 2**20,
    )


def _peak_memory() -> int:
    """Bytes: of the GPU if there is one, or of the process."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    # Linux counts kibibytes, macOS bytes.
    unit = 1 if sys.platform == 'darwin' else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
