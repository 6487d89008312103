"""From a config to its best margin loss: all behind ``tools/tune.py``."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
from mmengine.config import Config
from optuna.trial import Trial, TrialState

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.comparison.compare import make_study
from mmseg_margin.errors import SettingError

from .best_config import best_config_text, check_inheritable
from .report import BEST_CONFIG, summary, write_report
from .shared_study import SharedStudy
from .space import PAPER, Setting, next_setting, search_space, setting_of
from .text import REASON, progress_line
from .trial import ImpossibleSettingError, Task, run_trial, tuned_loss


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
        make_study(cfg, ['margin'], [seed], init),
        seed,
        init,
    )
    starts = starting_points(task.loss)
    shared = SharedStudy(
        out,
        {'config': cfg.pretty_text, 'seed': seed, 'init': init},
        task.study.iterations,
    )
    before, began = len(shared.finished), time.monotonic()
    for trial in shared.claim(
        trials,
        search_space(list(starts.values())),
        lambda past: next_setting(past, list(starts.values()), seed),
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


def starting_points(loss: dict[str, Any]) -> dict[str, Setting]:
    """The paper's setting and the config's own, if they differ."""
    own = setting_of(loss)
    return {
        "the paper's": PAPER,
        **({} if own == PAPER else {"the config's own": own}),
    }


def _carry_out(task: Task, shared: SharedStudy, trial: Trial) -> None:
    try:
        miou = run_trial(task, trial, shared.folder(trial.number))
    except ImpossibleSettingError as error:
        trial.set_user_attr(REASON, str(error))
        shared.study.tell(trial, state=TrialState.PRUNED)
    except optuna.TrialPruned:
        shared.study.tell(trial, state=TrialState.PRUNED)
    else:
        shared.study.tell(trial, miou)


def _publish(
    task: Task, shared: SharedStudy, starts: dict[str, Setting]
) -> Path:
    """Write the best config and the report; keep no needless checkpoints."""
    with shared.locked():
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
