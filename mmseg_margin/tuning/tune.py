"""From a config to its best margin loss: all behind ``tools/tune.py``."""

import time
from collections.abc import Callable
from pathlib import Path

import optuna
from mmengine.config import Config
from optuna.trial import Trial, TrialState

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.comparison.compare import make_setup
from mmseg_margin.errors import SettingError
from mmseg_margin.losses.presets import PRESETS

from .best_config import best_config_text, check_inheritable
from .report import BEST_CONFIG, summary, write_report
from .shared_study import SharedStudy
from .space import Setting, propose, setting_of
from .text import progress_line
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

    Returns:
        All trials.
    """
    if trials < 1:
        raise SettingError(f'--trials must be 1 or more, got {trials}.')
    if not cfg.get('val_dataloader'):
        raise SettingError(
            'The config has no val_dataloader: add one with images that are '
            'neither trained nor tested on, because tuning decides on them.'
        )
    check_inheritable(cfg)
    task = Task(
        cfg,
        tuned_loss(cfg),
        make_setup(cfg, {'margin': 'margin'}, [seed], init),
        seed,
        init,
    )
    starts = starting_points(task)
    for setting in starts.values():
        check_setting(task, setting)
    shared = SharedStudy(
        out,
        {'config': cfg.pretty_text, 'seed': seed, 'init': init},
        task.setup.iterations,
    )
    before, began = len(shared.finished), time.monotonic()
    for trial in shared.claim(
        trials, lambda past: propose(past, list(starts.values()), seed)
    ):
        _carry_out(task, shared, trial)
        done = len(shared.finished)
        pace = (time.monotonic() - began) / max(done - before, 1)
        show(
            progress_line(
                shared.trials[trial.number],
                shared.best,
                done,
                trials,
                pace * max(trials - done, 0),
            )
        )
        _publish(task, shared, starts)
    report = _publish(task, shared, starts)
    show(summary(shared, list(starts)))
    show(f'The report is {report}')
    return shared


def starting_points(task: Task) -> dict[str, Setting]:
    """Every preset, and the config's own setting if it is another."""
    losses = {f'preset {name}': {'preset': name} for name in PRESETS}
    losses["the config's own"] = task.loss
    starts: dict[str, Setting] = {}
    for name, loss in losses.items():
        setting = setting_of(loss, task.setup.class_counts)
        if setting not in starts.values():
            starts[name] = setting
    return starts


def _carry_out(task: Task, shared: SharedStudy, trial: Trial) -> None:
    try:
        miou = run_trial(task, trial, shared.folder(trial.number))
    except optuna.TrialPruned:
        shared.study.tell(trial, state=TrialState.PRUNED)
    else:
        shared.study.tell(trial, miou)


def _publish(
    task: Task, shared: SharedStudy, starts: dict[str, Setting]
) -> Path:
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
            atomic_write_text(
                shared.out / BEST_CONFIG,
                best_config_text(
                    task.cfg, task.loss_with(best.params), shared.out, remark
                ),
            )
        return write_report(task, shared, starts)
