"""Trials as a reader sees them."""

from datetime import timedelta
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from .space import Setting

REASON = 'reason'


def value_text(value: Any) -> str:
    return f'{value:.4g}' if isinstance(value, float) else str(value)


def setting_text(setting: Setting) -> str:
    """``form=paper, tau=10, ...``"""
    return ', '.join(f'{k}={value_text(v)}' for k, v in setting.items())


def objective_text(setting: Setting) -> str:
    """The same for ``tools/compare.py --losses``, to the last digit."""
    return 'margin:' + ','.join(f'{k}={v}' for k, v in setting.items())


def outcome_text(trial: FrozenTrial) -> str:
    """The validation mIoU, or why there is none."""
    if trial.state == TrialState.COMPLETE:
        return f'{trial.value:.2f}'
    if trial.state == TrialState.RUNNING:
        return 'running'
    if REASON in trial.user_attrs:
        return f'impossible: {trial.user_attrs[REASON]}'
    return f'{trial.value:.2f} when stopped at iteration {trial.last_step}'


def progress_line(
    trial: FrozenTrial,
    best: FrozenTrial | None,
    done: int,
    total: int,
    seconds_left: float,
) -> str:
    """One line for a trial that has just finished."""
    leader = ''
    if best is not None:
        leader = f', best {best.value:.2f} (trial {best.number})'
    return (
        f'trial {trial.number}: {setting_text(trial.params)}: val mIoU '
        f'{outcome_text(trial)}{leader}; {done} of {total} trials, '
        f'{timedelta(seconds=round(seconds_left))} left'
    )
