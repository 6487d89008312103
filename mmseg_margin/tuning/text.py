"""Trials as a reader sees them."""

from datetime import timedelta
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from mmseg_margin.losses.presets import written_out

from .space import Setting


def value_text(value: Any) -> str:
    return f'{value:.4g}' if isinstance(value, float) else str(value)


def setting_text(setting: Setting) -> str:
    """``form=paper, focus=2, ...``"""
    return ', '.join(f'{k}={value_text(v)}' for k, v in setting.items())


def objective_text(loss: Setting) -> str:
    """A loss config for ``tools/compare.py --losses``, to the last digit."""
    given = written_out(loss) | {'preset': 'paper'}
    del given['type']
    return 'margin:' + ','.join(
        f'{k}={v}' for k, v in given.items() if v is not None
    )


def outcome_text(trial: FrozenTrial) -> str:
    """The validation mIoU, or why there is none."""
    if trial.state == TrialState.COMPLETE:
        return f'{trial.value:.2f}'
    if trial.state == TrialState.RUNNING:
        return 'running'
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
