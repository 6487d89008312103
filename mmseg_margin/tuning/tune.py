"""From a config to its best margin loss: all behind ``tools/tune.py``."""

import copy
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from mmengine.config import Config
from optuna.trial import TrialState

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.comparison.compare import make_setup
from mmseg_margin.errors import SettingError
from mmseg_margin.heads import heads_of_config
from mmseg_margin.losses.swap import set_objective

from .report import BEST_CONFIG, outcome_text, summary, write_report
from .search_space import loss_with, propose, setting_text, starting_points
from .shared_study import SharedStudy
from .trial import Task, check_setting, run_trial, tuned_loss


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
    setup = make_setup(cfg, {'margin': 'margin'}, [seed], init)
    loss = tuned_loss(cfg)
    starts = starting_points(loss, setup.class_counts)
    task = Task(cfg, loss, setup, seed, init, starts)
    for setting in starts.values():
        check_setting(task, setting)
    identity = {'config': cfg.pretty_text, 'seed': seed, 'init': init}
    shared = SharedStudy(out, identity, setup.iterations)
    before, began = len(shared.finished), time.monotonic()
    for trial in shared.claim(
        trials, lambda past: propose(past, list(starts.values()), seed)
    ):
        miou = run_trial(task, trial, shared.folder(trial.number))
        stopped = TrialState.PRUNED if miou is None else None
        shared.study.tell(trial, miou, stopped)
        done = len(shared.finished)
        pace = (time.monotonic() - began) / max(done - before, 1)
        left = timedelta(seconds=round(pace * max(trials - done, 0)))
        outcome = outcome_text(shared.trials[trial.number])
        if best := shared.best:
            outcome += f', best {best.value:.2f} (trial {best.number})'
        show(
            f'trial {trial.number}: {setting_text(trial.params)}: val mIoU '
            f'{outcome}; {done} of {trials} trials, {left} left'
        )
        _publish(task, shared)
    report = _publish(task, shared)
    show(summary(task, shared))
    show(f'The report is {report}')
    return shared


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
    """A config that inherits the tuned one and changes only the objective.

    It is for a file in the folder, and has the remark on top.
    """
    swapped = copy.deepcopy(cfg)
    set_objective(swapped, loss)
    changes = {key: swapped[key] for key in ('custom_imports', 'custom_hooks')}
    base = os.path.relpath(cfg.filename, folder)
    return f'# {remark}\n_base_ = {base!r}\n{Config(changes).pretty_text}'


def _publish(task: Task, shared: SharedStudy) -> Path:
    """Write the best config and the report; keep no needless checkpoints."""
    with shared.lock:
        best = shared.best
        for trial in shared.finished:
            if best is None or trial.number != best.number:
                for file in shared.folder(trial.number).glob('*.pth'):
                    file.unlink()
        if best is not None:
            remark = (
                f'Trial {best.number} of {len(shared.finished)}: validation '
                f'mIoU {best.value:.2f}.'
            )
            loss = loss_with(task.loss, best.params)
            text = best_config_text(task.cfg, loss, shared.out, remark)
            atomic_write_text(shared.out / BEST_CONFIG, text)
        return write_report(task, shared)
