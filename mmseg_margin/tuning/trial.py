"""One trial: a training with one setting, judged on the validation split."""

import contextlib
import copy
import gc
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import optuna
import torch
from mmengine.config import Config, ConfigDict
from mmengine.hooks import Hook
from mmengine.runner import Runner
from optuna.trial import Trial

from mmseg_margin.comparison import CurvesHook
from mmseg_margin.comparison.records import Setup
from mmseg_margin.comparison.runs import Run, run_config, train_and_test
from mmseg_margin.config_tools import add_hook, as_list, registered_name
from mmseg_margin.heads import heads_of_config
from mmseg_margin.hooks.swap_loss_hook import SwapLossHook
from mmseg_margin.losses import MarginCalibrationLoss
from mmseg_margin.losses.objectives import build_loss, parse_objective

from .search_space import Setting, loss_with

LOG_FILE = 'log.txt'


@dataclass(frozen=True)
class Task:
    """What all trials have in common."""

    cfg: Config
    loss: dict[str, Any]  # with what is tuned and what is not
    setup: Setup
    seed: int
    init: str | None  # the checkpoint that every training starts from
    starts: dict[str, Setting]  # what is tried first, by name


class PruningHook(Hook):
    """Reports the validation mIoU of CurvesHook to a trial.

    It belongs to one trial, so it is no part of a config.
    """

    def __init__(self, trial: Trial) -> None:
        self.trial = trial

    def after_train_iter(self, runner: Runner, *args, **kwargs) -> None:
        curves = next(h for h in runner.hooks if isinstance(h, CurvesHook))
        if not self.every_n_train_iters(runner, curves.interval):
            return
        iteration, miou = curves.curves['val_mIoU'][-1]
        self.trial.report(miou, iteration)
        if iteration < runner.max_iters and self.trial.should_prune():
            raise optuna.TrialPruned


def tuned_loss(cfg: Config) -> dict[str, Any]:
    """The margin loss that the config has, or that of ``--loss margin``."""
    swaps = [
        parse_objective(hook.get('loss', 'margin'))
        for hook in as_list(cfg.get('custom_hooks'))
        if registered_name(hook) == SwapLossHook.__name__
    ]
    own = [
        as_list(head.get('loss_decode'))
        for head in heads_of_config(cfg.model).values()
    ]
    loss = next(
        loss
        for loss in chain(*(swaps or own), parse_objective('margin'))
        if registered_name(loss) == MarginCalibrationLoss.__name__
    )
    # Each head keeps a weight of its own.
    return {k: v for k, v in loss.items() if k != 'loss_weight'}


def run_trial(task: Task, trial: Trial, folder: Path) -> float | None:
    """Train, and return the mIoU on the whole validation split in percent.

    None if it was stopped early because it did worse than others did.
    """
    cfg = trial_config(task, trial.params, folder)
    try:
        with (
            open(folder / LOG_FILE, 'a', encoding='utf-8') as log,
            contextlib.redirect_stdout(log),
            contextlib.redirect_stderr(log),
        ):
            return train_and_test(cfg, [PruningHook(trial)]).metrics['mIoU']
    except optuna.TrialPruned:
        return None
    finally:
        gc.collect()
        torch.cuda.empty_cache()


def check_setting(task: Task, setting: Setting) -> None:
    """Let the loss derive its margins as it will in the training."""
    loss = build_loss(loss_with(task.loss, setting))
    if task.loss.get('class_counts') is None:
        loss.set_class_counts(task.setup.class_counts, task.setup.classes)


def trial_config(task: Task, setting: Setting, folder: Path) -> Config:
    """A run of a comparison, but tested on the validation split."""
    base = copy.deepcopy(task.cfg)
    base.test_dataloader = base.val_dataloader
    base.test_cfg = base.get('test_cfg') or ConfigDict(type='TestLoop')
    run = Run('margin', loss_with(task.loss, setting), task.seed, folder)
    cfg = run_config(base, run, task.init, task.setup.class_counts)
    add_hook(
        cfg,
        'CurvesHook',
        # Nothing here looks at the curve of the training images.
        datasets=ConfigDict(val=base.val_dataloader.dataset),
        # What is decided at these points should not be decided by chance.
        interval=cfg.default_hooks.checkpoint.interval,
        images=20,
    )
    # mmengine keeps loggers and message hubs by this name.
    cfg.experiment_name = f'trial-{folder.name}'
    return cfg
