"""The runs of a comparison: the same config but for objective and seed."""

import copy
import re
from dataclasses import dataclass
from pathlib import Path

from mmengine.config import Config, ConfigDict

from mmseg_margin.errors import SettingError
from mmseg_margin.hooks.fused_loss_hook import add_fused_loss_hook
from mmseg_margin.hooks.swap_loss_hook import train_with
from mmseg_margin.losses.objectives import Objective
from mmseg_margin.tooling import flags
from mmseg_margin.walks import add_hook, add_import, leaf_datasets

from .records import PREDICTIONS

CURVE_POINTS = 10
# NAME=objective; the settings of an objective come after a colon.
NAMED = re.compile(r'(?P<name>[^:=+]+)=(?P<objective>.+)', re.DOTALL)


@dataclass(frozen=True)
class Run:
    """One training of a comparison, in a folder of its own."""

    name: str
    objective: Objective
    seed: int
    folder: Path

    def __str__(self) -> str:
        return f'{self.name}, seed {self.seed}'


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
    add_fused_loss_hook(cfg)
    cfg.comparison = ConfigDict(name=run.name, seed=run.seed)
    cfg.work_dir = str(run.folder)
    cfg.load_from = init.format(seed=run.seed) if init else None
    cfg.randomness = ConfigDict(seed=run.seed)
    interval = max(1, training_iterations(cfg) // CURVE_POINTS)
    add_hook(cfg, 'ExactResumeHook')
    _add_curves(cfg, interval)
    # What CurvesHook and the metric are registered by.
    add_import(cfg, 'mmseg_margin.comparison')
    flags.without_validation(cfg)
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
    datasets = ConfigDict(train=train, val=val.dataset)
    add_hook(cfg, 'CurvesHook', datasets=datasets, interval=interval)
