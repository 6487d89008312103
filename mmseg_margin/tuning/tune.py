"""From a config to its best loss: everything behind ``tune``."""

import contextlib
import copy
import gc
import os
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import torch
from mmengine.config import Config, ConfigDict
from optuna.trial import Trial

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.comparison.compare import describe
from mmseg_margin.comparison.training import run_config, train_and_test
from mmseg_margin.config_tools import add_hook, registered_name
from mmseg_margin.errors import SettingError
from mmseg_margin.heads import heads_of_config
from mmseg_margin.losses.objectives import losses_of_config, parse_objective
from mmseg_margin.losses.swap import set_objective

from .report import BEST_CONFIG, Task, outcome_text, summary, write_report
from .search_space import (
    CLASSES,
    FIRST,
    Setting,
    first_settings,
    loss_with,
    search_space,
    setting_text,
)
from .study import SharedStudy

LOG_FILE = 'log.txt'


def tune(
    cfg: Config,
    trials: int,
    out: Path,
    seed: int = 0,
    init: str | None = None,
    show: Callable[[str], None] = print,
) -> SharedStudy:
    """Run trials until so many are finished, then write the report.

    What has been done before in the same folder is not done again, and other
    processes may work in it at the same time.
    """
    if trials < 1:
        raise SettingError(f'--trials must be 1 or more, got {trials}.')
    if not cfg.get('val_dataloader'):
        raise SettingError(
            'The config has no val_dataloader: add one with images that are '
            'neither trained nor tested on, because tuning decides on them.'
        )
    check_inheritable(cfg)
    common, loss = describe(cfg, init), own_loss(cfg)
    first = first_settings(loss, common['class_counts'])
    task = Task(cfg, loss, common, seed, init, first)
    identity = {'config': cfg.pretty_text, 'seed': seed, 'init': init}
    shared = SharedStudy(out, identity, common['iterations'])
    before, began = len(shared.finished), time.monotonic()

    def show_trial(place: int) -> None:
        done, trial = len(shared.finished), shared.trials[place]
        pace = (time.monotonic() - began) / max(done - before, 1)
        left = timedelta(seconds=round(pace * max(trials - done, 0)))
        outcome = outcome_text(trial)
        if (best := shared.best) is not None:
            value = shared.trials[best].value
            outcome += f', best {value:.2f} (trial {best})'
        show(
            f'trial {place}: {setting_text(trial.params)}: val mIoU '
            f'{outcome}; {done} of {trials} trials, {left} left'
        )
        publish(task, shared)

    settings = list(first.values())
    space = search_space(settings, common['class_counts'])
    shared.optimize(
        trials,
        settings,
        seed,
        space,
        partial(run_trial, task),
        show_trial,
    )
    report = publish(task, shared)
    show(summary(task, shared.trials))
    show(f'The report is {report}')
    return shared


def own_loss(cfg: Config) -> dict[str, Any]:
    """The config's own loss of ours, or the first one that is tried."""
    loss = next(
        loss
        for loss in (*losses_of_config(cfg), *parse_objective(FIRST[0]))
        if registered_name(loss) in CLASSES.values()
    )
    # Each head keeps a weight of its own.
    return {k: v for k, v in loss.items() if k != 'loss_weight'}


def run_trial(
    task: Task, trial: Trial, setting: Setting, folder: Path
) -> float:
    """Train, and return the mIoU on the whole validation split in percent."""
    cfg = trial_config(task, setting, folder)

    def prune(iteration: int, figures: dict[str, float]) -> None:
        trial.report(figures['val_mIoU'], iteration)
        if iteration < task.common['iterations'] and trial.should_prune():
            raise optuna.TrialPruned

    try:
        with (
            open(folder / LOG_FILE, 'a', encoding='utf-8') as log,
            contextlib.redirect_stdout(log),
            contextlib.redirect_stderr(log),
        ):
            return train_and_test(cfg, prune)['metrics']['mIoU']
    finally:
        gc.collect()
        torch.cuda.empty_cache()


def trial_config(task: Task, setting: Setting, folder: Path) -> Config:
    """A run of a comparison, but tested on the validation split."""
    base = copy.deepcopy(task.cfg)
    base.test_dataloader = base.val_dataloader
    base.test_cfg = base.get('test_cfg') or ConfigDict(type='TestLoop')
    loss, counts = loss_with(task.loss, setting), task.common['class_counts']
    cfg = run_config(base, loss, task.seed, folder, task.init, counts)
    add_hook(
        cfg,
        'CurvesHook',
        # Nothing here looks at the curve of the training images.
        datasets=ConfigDict(val=base.val_dataloader.dataset),
        # More points and images than in a comparison, to prune on.
        interval=cfg.default_hooks.checkpoint.interval,
        images=20,
    )
    # mmengine keeps loggers and message hubs by this name.
    cfg.experiment_name = f'trial-{folder.name}'
    return cfg


def check_inheritable(cfg: Config) -> None:
    """Whether a config file can have this one as its base."""
    heads = heads_of_config(cfg.model).values()
    if not all(isinstance(head.type, str) for head in heads):
        raise SettingError(
            f'{cfg.filename} imports its classes, so no other config file '
            'can inherit it: write it out as one with '
            'mmengine.Config.fromfile(CONFIG).dump(FILE) and tune that.'
        )


def best_config_text(
    cfg: Config, loss: dict[str, Any], folder: Path, remark: str
) -> str:
    """A config for a file in the folder, which changes only the objective."""
    swapped = copy.deepcopy(cfg)
    set_objective(swapped, loss)
    changes = {key: swapped[key] for key in ('custom_imports', 'custom_hooks')}
    base = os.path.relpath(cfg.filename, folder)
    return f'# {remark}\n_base_ = {base!r}\n{Config(changes).pretty_text}'


def publish(task: Task, shared: SharedStudy) -> Path:
    """Write the best config and the report; keep one trial's checkpoints."""
    with shared.lock:
        best, trials = shared.best, shared.trials
        for place, trial in enumerate(trials):
            if trial.state.is_finished() and place != best:
                for file in shared.folder(place).glob('*.pth'):
                    file.unlink()
        if best is not None:
            remark = (
                f'Trial {best} of {len(shared.finished)}: validation mIoU '
                f'{trials[best].value:.2f}.'
            )
            loss = loss_with(task.loss, trials[best].params)
            text = best_config_text(task.cfg, loss, shared.out, remark)
            atomic_write_text(shared.out / BEST_CONFIG, text)
        return write_report(task, shared)
