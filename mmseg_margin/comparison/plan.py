"""The runs of a comparison: the same config but for objective and seed."""

import copy
from dataclasses import dataclass
from pathlib import Path

from mmengine.config import Config, ConfigDict

from mmseg_margin.errors import SettingError
from mmseg_margin.evaluation import flags
from mmseg_margin.hooks.swap_loss_hook import train_with
from mmseg_margin.tooling.training_flags import without_validation
from mmseg_margin.walks import add_hook, leaf_datasets

from .results import PREDICTIONS, run_folder

CURVE_POINTS = 10


@dataclass(frozen=True)
class Run:
    """One training of a comparison, in a folder of its own."""

    objective: str
    seed: int
    folder: Path

    def __str__(self) -> str:
        return f'{self.objective}, seed {self.seed}'


def plan_runs(out: Path, losses: list[str], seeds: list[int]) -> list[Run]:
    """Seed by seed, so that a comparison cut short is still a fair one."""
    return [
        Run(objective, seed, run_folder(out, objective, seed))
        for seed in seeds
        for objective in losses
    ]


def run_config(
    base: Config,
    run: Run,
    init: str | None,
    class_counts: list[int],
    keep_predictions: bool,
) -> Config:
    """The whole config of one run, ready to be trained and tested."""
    cfg = copy.deepcopy(base)
    train_with(cfg, run.objective)
    cfg.comparison = ConfigDict(objective=run.objective, seed=run.seed)
    cfg.work_dir = str(run.folder)
    cfg.load_from = init.format(seed=run.seed) if init else None
    cfg.randomness = ConfigDict(seed=run.seed)
    iterations = training_iterations(cfg)
    interval = max(1, iterations // CURVE_POINTS)
    add_hook(cfg, 'ExactResumeHook')
    _add_curves(cfg, interval)
    without_validation(cfg)
    cfg.default_hooks.checkpoint = ConfigDict(
        type='CheckpointHook',
        by_epoch=False,
        interval=interval,
        # mmengine removes the old one before it writes the new one.
        max_keep_ckpts=2,
    )
    cfg.test_evaluator = ConfigDict(
        type='ClassIoUMetric',
        iou_metrics=['mIoU'],
        class_counts=class_counts,
    )
    if keep_predictions:
        flags.keep_predictions(cfg, str(run.folder / PREDICTIONS))
    return cfg


def training_iterations(cfg: Config) -> int:
    iterations = cfg.train_cfg.get('max_iters')
    if iterations is None:
        raise SettingError(
            'The config trains by epochs: give it an IterBasedTrainLoop with '
            'max_iters, so that every objective gets the same iterations.'
        )
    return iterations


def _add_curves(cfg: Config, interval: int) -> None:
    val = cfg.get('val_dataloader') or cfg.test_dataloader
    train = copy.deepcopy(cfg.train_dataloader.dataset)
    for leaf in leaf_datasets(train):
        leaf.pipeline = leaf_datasets(val.dataset)[0].pipeline
    cfg.custom_hooks = [
        *cfg.custom_hooks,
        ConfigDict(
            type='CurvesHook',
            datasets=dict(train=train, val=val.dataset),
            interval=interval,
        ),
    ]
