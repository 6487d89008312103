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
from .search_space import CLASSES, FIRST, SearchSpace, setting_text
from .study import SharedStudy, best_of, count_finished

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
    heads = heads_of_config(cfg.model).values()
    if not all(isinstance(head.type, str) for head in heads):
        raise SettingError(
            f'{cfg.filename} imports its classes, so no other config file '
            'can inherit it: write it out as one with '
            'mmengine.Config.fromfile(CONFIG).dump(FILE) and tune that.'
        )
    common = describe(cfg, init)
    space = SearchSpace(own_loss(cfg), common['class_counts'], seed)
    task = Task(cfg, common, space, init)
    identity = {'config': cfg.pretty_text, 'seed': seed, 'init': init}
    shared = SharedStudy(out, identity, common['iterations'])
    before, began = count_finished(shared.trials), time.monotonic()
    for trial in shared.optimize(trials, space, partial(run_trial, task)):
        done, best = count_finished(shared.trials), best_of(shared.trials)
        pace = (time.monotonic() - began) / max(done - before, 1)
        left = timedelta(seconds=round(pace * max(trials - done, 0)))
        outcome = outcome_text(trial)
        if best:
            outcome += f', best {best.value:.2f} (trial {best.number})'
        show(
            f'trial {trial.number}: {setting_text(trial.params)}: val mIoU '
            f'{outcome}; {done} of {trials} trials, {left} left'
        )
        publish(task, shared)
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


def run_trial(task: Task, trial: Trial, folder: Path) -> float:
    """Train, and return the mIoU on the whole validation split in percent."""
    cfg = trial_config(task, trial.params, folder)

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


def trial_config(task: Task, setting: dict[str, Any], folder: Path) -> Config:
    """A run of a comparison, but tested on the validation split."""
    base = copy.deepcopy(task.cfg)
    base.test_dataloader = base.val_dataloader
    base.test_cfg = base.get('test_cfg') or ConfigDict(type='TestLoop')
    loss, counts = task.space.loss(setting), task.common['class_counts']
    cfg = run_config(base, loss, task.space.seed, folder, task.init, counts)
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
        trials = shared.trials
        best = best_of(trials)
        for trial in trials:
            if trial.state.is_finished() and trial != best:
                for file in shared.folder(trial.number).glob('*.pth'):
                    file.unlink()
        if best:
            remark = (
                f'Trial {best.number} of {count_finished(trials)}: validation '
                f'mIoU {best.value:.2f}.'
            )
            loss = task.space.loss(best.params)
            text = best_config_text(task.cfg, loss, shared.out, remark)
            atomic_write_text(shared.out / BEST_CONFIG, text)
        return write_report(task, shared)
