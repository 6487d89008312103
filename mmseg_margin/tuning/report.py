"""The report of a search: one HTML page, and the same as Markdown."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.trial import FrozenTrial, TrialState

from mmseg_margin.losses.presets import written_out as expand_preset
from mmseg_margin.report.numbers import ABSENT, signed
from mmseg_margin.report.pages import Block, Bold, Code, Page, Picture, Table
from mmseg_margin.report.pictures import BLUE, GREY, RED, picture

from .search_space import loss_with, setting_text, value_text
from .study import SharedStudy

if TYPE_CHECKING:
    from .tune import Task

BEST_CONFIG = 'best_config.py'
WARNINGS = (
    'Each setting was trained once. Differences as small as those between two '
    'seeds mean nothing: confirm the best setting with the comparison that '
    'stands under Commands, on the test split and with several seeds.',
    'The config tests on its validation images. The tuned setting was chosen '
    'on them, so its test result is too good; test it on other images.',
)
MARKS = {
    TrialState.COMPLETE: ('o', BLUE, 'whole training'),
    TrialState.PRUNED: ('x', GREY, 'stopped early'),
}
AXIS = 'validation mIoU in %'
COLUMNS = 4
# Importance compares the best quarter with all trials.
BEST_FRACTION = 0.25
FEWEST_FOR_IMPORTANCE = 8


def write_report(task: Task, shared: SharedStudy) -> Path:
    """Write ``OUT/report/index.html`` and ``report.md`` with pictures."""
    folder = shared.out / 'report'
    folder.mkdir(parents=True, exist_ok=True)
    common = task.common
    tested = task.cfg.get('test_dataloader') or {}
    same_split = tested.get('dataset') == task.cfg.val_dataloader.dataset
    rows = {
        'start from': common['init'] or 'the initialisation of the config',
        'loss': setting_text(task.loss),
        **common['versions'],
        'optuna': optuna.__version__,
    }
    return Page(
        'Tuning of the loss',
        f'{common["config"]}, {common["iterations"]:,} iterations, '
        f'seed {task.seed}',
        summary(task, shared),
        {
            'Best setting': [best_table(task, shared)],
            'All trials': [trial_table(shared)],
            'What matters': _pictures(shared, folder),
            'Commands': _commands(task, shared),
            'Settings': [
                Table(
                    ['setting', 'value'],
                    list(rows.items()),
                    'What all trials have in common, and the versions.',
                    numeric=False,
                )
            ],
        },
        WARNINGS if same_split else WARNINGS[:1],
    ).write(folder)


def summary(task: Task, shared: SharedStudy) -> str:
    """The best trial against the first settings, in a sentence."""
    if shared.best is None:
        return 'No training has been finished yet.'
    gains = [
        f'{gain:.2f} above {name}'
        for name, gain in zip(task.first, _gains(shared), strict=False)
        if gain is not None
    ]
    against = f': {" and ".join(gains)}' if gains else ''
    return (
        f'The best of {len(shared.finished)} trials is trial {shared.best} '
        'with a validation mIoU of '
        f'{shared.trials[shared.best].value:.2f}{against}.'
    )


def trial_table(shared: SharedStudy) -> Table:
    """Every trial with its setting and what came of it."""
    trials = shared.trials
    columns = {'trial': [*map(str, range(len(trials)))]}
    for name in dict.fromkeys(name for t in trials for name in t.params):
        values = [trial.params.get(name, ABSENT) for trial in trials]
        columns[name] = [*map(value_text, values)]
    columns['mIoU'] = [
        Bold(text) if place == shared.best else text
        for place, text in enumerate(map(outcome_text, trials))
    ]
    return Table.of_columns(
        columns,
        'Validation mIoU in percent, on the whole split unless the training '
        'was stopped early.',
    )


def best_table(task: Task, shared: SharedStudy) -> Table:
    """The first settings and the best, with what the best gained."""
    rows = [
        (name, trial, ABSENT if gain is None else signed(gain))
        for name, trial, gain in zip(
            task.first, shared.trials, _gains(shared), strict=False
        )
    ]
    if shared.best is not None:
        rows.append(('the best', shared.trials[shared.best], ABSENT))
    return Table(
        ['setting', 'parameters', 'val mIoU', 'gain of the best'],
        [
            [name, setting_text(trial.params), outcome_text(trial), gain]
            for name, trial, gain in rows
        ],
        'The best setting against those the search began with.',
    )


def outcome_text(trial: FrozenTrial) -> str:
    """The validation mIoU, or why there is none."""
    if trial.state == TrialState.COMPLETE:
        return f'{trial.value:.2f}'
    if trial.state == TrialState.PRUNED and trial.value is not None:
        return f'{trial.value:.2f} when stopped at iteration {trial.last_step}'
    return trial.state.name.lower().replace('fail', 'failed')


def _gains(shared: SharedStudy) -> list[float | None]:
    """How much better the best is than every other whole training."""
    trials, best = shared.trials, shared.best
    return [
        None
        if best is None or place == best or trial.state != TrialState.COMPLETE
        else (trials[best].value or 0.0) - (trial.value or 0.0)
        for place, trial in enumerate(trials)
    ]


def _commands(task: Task, shared: SharedStudy) -> list[Block]:
    blocks: list[Block] = ['The search:', Code(task.common['command'])]
    if shared.best is None:
        return blocks
    loss = loss_with(task.loss, shared.trials[shared.best].params)
    objective = shared.trials[shared.best].params['objective']
    settings = ','.join(
        f'{key}={value}'
        for key, value in expand_preset(loss).items()
        if key != 'type' and value is not None
    )
    return [
        *blocks,
        'With the same --cfg-options, but for those of the loss: a training '
        'with the best setting, and a comparison over several seeds, on the '
        'test split.',
        Code(
            f'python -m mmseg_margin train {shared.out / BEST_CONFIG}\n'
            f'python -m mmseg_margin compare {task.cfg.filename} --seeds 3 '
            f'--losses ce tuned={objective}:{settings}'
        ),
    ]


def _pictures(shared: SharedStudy, folder: Path) -> list[Block]:
    """Optuna's own leave out the trials that were stopped early."""
    if shared.best is None:
        return ['There is nothing to draw yet.']
    trials = shared.trials
    history, slices = folder / 'history.png', folder / 'slices.png'
    with picture(history, 8, 3.6) as figure:
        axes = figure.subplots()
        points = list(enumerate(trials))
        _scatter(axes, points)
        whole = [(i, t) for i, t in points if t.state == TrialState.COMPLETE]
        axes.step(
            [place for place, _ in whole],
            [*accumulate((trial.value or 0.0 for _, trial in whole), max)],
            where='post',
            color=RED,
            label='best so far',
        )
        axes.set_xlabel('trial')
        axes.set_ylabel(AXIS)
        figure.legend(loc='outside right upper', frameon=False)
    _draw_slices(trials, slices)
    return [
        Picture(history, 'The mIoU of each trial.'),
        Picture(slices, 'The mIoU over each parameter.', wide=True),
        _draw_importance(shared, folder / 'importance.png'),
    ]


def _draw_slices(trials: list[FrozenTrial], path: Path) -> None:
    """The mIoU over each parameter, of the trials that have it."""
    space = {k: d for t in trials for k, d in t.distributions.items()}
    rows = -(-len(space) // COLUMNS)
    with picture(path, 2.8 * COLUMNS, 2.8 * rows) as figure:
        panels = figure.subplots(rows, COLUMNS, sharey=True, squeeze=False)
        for axes in panels.flat[len(space) :]:
            axes.set_axis_off()
        for axes in panels[:, 0]:
            axes.set_ylabel(AXIS)
        for axes, (name, distribution) in zip(
            panels.flat, space.items(), strict=False
        ):
            points = [(t.params[name], t) for t in trials if name in t.params]
            if isinstance(distribution, CategoricalDistribution):
                choices = list(distribution.choices)
                axes.set_xticks(range(len(choices)), map(value_text, choices))
                axes.set_xlim(-0.5, len(choices) - 0.5)
                points = [(choices.index(value), t) for value, t in points]
            else:
                axes.set_xscale('log')
            axes.set_xlabel(name)
            _scatter(axes, points)


def _draw_importance(shared: SharedStudy, path: Path) -> Block:
    """The parameter that matters most on top."""
    states = [trial.state for trial in shared.trials]
    if states.count(TrialState.COMPLETE) < FEWEST_FOR_IMPORTANCE:
        return 'There are too few trials to tell which matter most.'
    evaluator = PedAnovaImportanceEvaluator(target_quantile=BEST_FRACTION)
    found = optuna.importance.get_param_importances(
        shared.study, evaluator=evaluator
    )
    with picture(path, 6, 2.6) as figure:
        axes = figure.subplots()
        axes.barh(list(found), list(found.values()), color=BLUE)
        axes.invert_yaxis()
        axes.set_xlabel('importance')
    return Picture(
        path,
        'How much each parameter decides whether a trial is among the best '
        'quarter (PED-ANOVA).',
    )


def _scatter(axes: Any, points: list[tuple[Any, FrozenTrial]]) -> None:
    for state, (mark, colour, label) in MARKS.items():
        found = [(x, t.value) for x, t in points if t.state == state]
        x = [place for place, value in found if value is not None]
        y = [value for _, value in found if value is not None]
        axes.scatter(x, y, marker=mark, color=colour, label=label)
