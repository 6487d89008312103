"""The report of a search: one HTML page, and the same as Markdown."""

from pathlib import Path

import optuna
from optuna.trial import FrozenTrial, TrialState

from mmseg_margin.losses.presets import written_out
from mmseg_margin.report.numbers import ABSENT, signed
from mmseg_margin.report.pages import Bold, Table, write_pages

from .plots import plot_history, plot_importances, plot_slices
from .search_space import loss_with, setting_text, value_text
from .shared_study import SharedStudy
from .trial import Task

BEST_CONFIG = 'best_config.py'


def write_report(task: Task, shared: SharedStudy) -> Path:
    """Write ``OUT/report/index.html`` and ``report.md`` with pictures."""
    folder = shared.out / 'report'
    folder.mkdir(parents=True, exist_ok=True)
    tested = task.cfg.get('test_dataloader') or {}
    trials = shared.trials
    pictures = confirmation = None
    if shared.best:
        pictures = {
            'history': plot_history(trials, folder),
            'slices': plot_slices(trials, folder),
            'importance': plot_importances(shared.study, folder),
        }
        confirmation = (
            f'python -m mmseg_margin train {shared.out / BEST_CONFIG}\n'
            f'python -m mmseg_margin compare {task.cfg.filename} --seeds 3 '
            f'--losses ce tuned={_objective_text(task, shared.best)}'
        )
    return write_pages(
        folder,
        'tuning',
        setup=task.setup,
        seed=task.seed,
        loss=setting_text(task.loss),
        versions={**task.setup.versions, 'optuna': optuna.__version__},
        summary=summary(task, shared),
        same_split=tested.get('dataset') == task.cfg.val_dataloader.dataset,
        best=best_table(task, shared),
        trials=trial_table(shared),
        pictures=pictures,
        confirmation=confirmation,
    )


def summary(task: Task, shared: SharedStudy) -> str:
    """The best trial against the starting points, in a sentence."""
    best = shared.best
    if best is None:
        return 'No training has been finished yet.'
    gains = [
        f'{gain:.2f} above {name}'
        for name, trial in _start_trials(task, shared).items()
        if (gain := _gain(best, trial)) is not None
    ]
    against = f': {" and ".join(gains)}' if gains else ''
    return (
        f'The best of {len(shared.finished)} trials is trial {best.number} '
        f'with a validation mIoU of {best.value:.2f}{against}.'
    )


def trial_table(shared: SharedStudy) -> Table:
    """Every trial with its setting and what came of it."""
    trials, best = shared.trials, shared.best
    columns = {'trial': [str(trial.number) for trial in trials]}
    for name in dict.fromkeys(name for t in trials for name in t.params):
        values = [trial.params.get(name, ABSENT) for trial in trials]
        columns[name] = [*map(value_text, values)]
    columns['mIoU'] = [*map(outcome_text, trials)]
    if best:
        columns['mIoU'][best.number] = Bold(outcome_text(best))
    return Table.of_columns(columns)


def best_table(task: Task, shared: SharedStudy) -> Table:
    """The starting points and the best, with what the best gained."""
    trials, best = _start_trials(task, shared), shared.best
    if best:
        trials['the best'] = best
    gains = [_gain(best, trial) for trial in trials.values()]
    return Table.of_columns(
        {
            'setting': list(trials),
            'parameters': [setting_text(t.params) for t in trials.values()],
            'val mIoU': [*map(outcome_text, trials.values())],
            'gain of the best': [
                ABSENT if gain is None else signed(gain) for gain in gains
            ],
        }
    )


def outcome_text(trial: FrozenTrial) -> str:
    """The validation mIoU, or why there is none."""
    if trial.state == TrialState.COMPLETE:
        return f'{trial.value:.2f}'
    if trial.state == TrialState.RUNNING:
        return 'running'
    return f'{trial.value:.2f} when stopped at iteration {trial.last_step}'


def _start_trials(task: Task, shared: SharedStudy) -> dict[str, FrozenTrial]:
    """The starting points that have been tried, which are the first trials."""
    return dict(zip(task.starts, shared.trials, strict=False))


def _gain(best: FrozenTrial | None, trial: FrozenTrial) -> float | None:
    """How much better the best is than another whole training."""
    whole = trial.state == TrialState.COMPLETE
    if best is None or not whole or trial.number == best.number:
        return None
    return (best.value or 0.0) - (trial.value or 0.0)


def _objective_text(task: Task, trial: FrozenTrial) -> str:
    """A trial for ``tools/compare.py --losses``, to the last digit."""
    loss = written_out(loss_with(task.loss, trial.params))
    given = {**loss, 'preset': 'paper', 'type': None}
    return 'margin:' + ','.join(
        f'{k}={v}' for k, v in given.items() if v is not None
    )
