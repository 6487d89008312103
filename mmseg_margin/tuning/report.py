"""The report of a search: one HTML page, and the same as Markdown."""

from pathlib import Path
from typing import Any, NamedTuple

import optuna
from optuna.trial import FrozenTrial, TrialState

from mmseg_margin.report import ABSENT, Bold, Table, signed, write_pages

from .plots import plot_history, plot_importances, plot_slices
from .shared_study import SharedStudy
from .space import Setting
from .text import objective_text, outcome_text, setting_text, value_text
from .trial import Task

BEST_CONFIG = 'best_config.py'
ONE_TRAINING = (
    'Each setting was trained once. Differences as small as those between two '
    'seeds mean nothing: confirm the best setting with the comparison that '
    'stands under Commands, on the test split and with several seeds.'
)
SAME_SPLIT = (
    'The config tests on its validation images. The tuned setting was chosen '
    'on them, so its test result is too good; test it on other images.'
)


class Pictures(NamedTuple):
    """Files; None where there are too few trials."""

    history: Path
    slices: Path
    importance: Path | None


def write_report(
    task: Task, shared: SharedStudy, starts: dict[str, Setting]
) -> Path:
    """Write ``OUT/report/index.html`` and ``report.md`` with pictures.

    Args:
        task: What all trials have in common.
        shared: The trials, of which some may be running.
        starts: The first settings that were tried, by name.

    Returns:
        The path of the page.
    """
    folder = shared.out / 'report'
    folder.mkdir(parents=True, exist_ok=True)
    tested = task.cfg.get('test_dataloader') or {}
    same_split = tested.get('dataset') == task.cfg.val_dataloader.dataset
    setup = task.setup
    settings = {
        'start from': setup.init or 'the initialisation of the config',
        'loss': setting_text(task.loss),
        **setup.versions,
        'optuna': optuna.__version__,
    }
    return write_pages(
        folder,
        'tuning',
        subtitle=f'{setup.config}, {setup.iterations:,} iterations, seed '
        f'{task.seed}',
        summary=summary(shared, list(starts)),
        warnings=[ONE_TRAINING, SAME_SPLIT] if same_split else [ONE_TRAINING],
        best=best_table(shared, list(starts)),
        trials=trial_table(shared),
        pictures=_draw(shared, folder),
        command='\n'.join(setup.commands),
        confirmation=_confirmation(task, shared),
        settings=Table(
            ['setting', 'value'], [[*row] for row in settings.items()]
        ),
    )


def summary(shared: SharedStudy, starts: list[str]) -> str:
    """The best trial against the starting points, in a sentence."""
    best = shared.best
    if best is None or best.value is None:
        return 'No training has been finished yet.'
    gains = [
        f'{best.value - trial.value:.2f} above {name}'
        for name, trial in _start_trials(shared, starts).items()
        if trial.state == TrialState.COMPLETE and trial.number != best.number
    ]
    against = f': {" and ".join(gains)}' if gains else ''
    return (
        f'The best of {len(shared.finished)} trials is trial {best.number} '
        f'with a validation mIoU of {best.value:.2f}{against}.'
    )


def trial_table(shared: SharedStudy) -> Table:
    """Every trial with its setting and what came of it."""
    names = list(dict.fromkeys(k for t in shared.trials for k in t.params))
    rows = []
    for trial in shared.trials:
        outcome = outcome_text(trial)
        if shared.best and trial.number == shared.best.number:
            outcome = Bold(outcome)
        values = [value_text(trial.params.get(n, ABSENT)) for n in names]
        rows.append([str(trial.number), *values, outcome])
    return Table(['trial', *names, 'mIoU'], rows)


def best_table(shared: SharedStudy, starts: list[str]) -> Table:
    """The starting points and the best, with what the best gained."""
    trials: dict[str, FrozenTrial] = _start_trials(shared, starts)
    best = shared.best
    if best is not None:
        trials = {**trials, 'the best': best}
    rows = []
    for name, trial in trials.items():
        gain = ABSENT
        whole = trial.state == TrialState.COMPLETE
        if whole and best is not None and trial.number != best.number:
            gain = signed((best.value or 0.0) - (trial.value or 0.0))
        setting = setting_text(trial.params)
        rows.append([name, setting, outcome_text(trial), gain])
    return Table(
        ['setting', 'parameters', 'val mIoU', 'gain of the best'], rows
    )


def _start_trials(shared: SharedStudy, starts: list[str]) -> dict[str, Any]:
    """The starting points that have been tried, which are the first trials."""
    return dict(zip(starts, shared.trials, strict=False))


def _draw(shared: SharedStudy, folder: Path) -> Pictures | None:
    if shared.best is None:
        return None
    return Pictures(
        plot_history(shared.trials, folder / 'history.png'),
        plot_slices(shared.trials, folder / 'slices.png'),
        plot_importances(shared.study, folder / 'importance.png'),
    )


def _confirmation(task: Task, shared: SharedStudy) -> str | None:
    if shared.best is None:
        return None
    return (
        f'python tools/train.py {shared.out / BEST_CONFIG}\n'
        f'python tools/compare.py {task.cfg.filename} --seeds 3 --losses ce '
        f'tuned={objective_text(task.loss_with(shared.best.params))}'
    )
