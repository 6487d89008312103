"""The report of a search: one HTML page, and the same as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import optuna
from mmengine.config import Config
from optuna.distributions import CategoricalDistribution
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.trial import FrozenTrial, TrialState

from mmseg_margin.report.numbers import ABSENT, signed
from mmseg_margin.report.pages import Block, Bold, Code, Page, Picture, Table
from mmseg_margin.report.pictures import BLUE, GREY, RED, picture

from .search_space import Setting, loss_with, setting_text, value_text
from .study import SharedStudy, best_of

Trials = Sequence[FrozenTrial]

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
BEST_FRACTION, FEWEST_FOR_IMPORTANCE = 0.25, 8


@dataclass(frozen=True)
class Task:
    """What all trials have in common."""

    cfg: Config
    loss: dict[str, Any]  # the config's own, with what is not searched
    common: dict[str, Any]  # of a run of this config
    seed: int
    init: str | None  # the checkpoint that every training starts from
    first: dict[str, Setting]  # what is tried first, by name


def write_report(task: Task, shared: SharedStudy) -> Path:
    """Write ``OUT/report/index.html`` and ``report.md`` with pictures."""
    folder = shared.out / 'report'
    folder.mkdir(parents=True, exist_ok=True)
    # Once, because other processes finish trials in the meantime.
    trials, common = shared.trials, task.common
    tested = task.cfg.get('test_dataloader') or {}
    same_split = tested.get('dataset') == task.cfg.val_dataloader.dataset
    rows = {
        'start from': common['init'] or 'the initialisation of the config',
        'loss': setting_text(task.loss),
        **common['versions'],
        'optuna': optuna.__version__,
    }
    caption = 'What all trials have in common, and the versions.'
    settings = Table(['setting', 'value'], [*rows.items()], caption, False)
    return Page(
        'Tuning of the loss',
        f'{common["config"]}, {common["iterations"]:,} iterations, '
        f'seed {task.seed}',
        summary(task, trials),
        {
            'Best setting': [best_table(task, trials)],
            'All trials': [trial_table(trials)],
            'What matters': _pictures(shared.study, trials, folder),
            'Commands': _commands(task, trials, shared.out),
            'Settings': [settings],
        },
        WARNINGS if same_split else WARNINGS[:1],
    ).write(folder)


def summary(task: Task, trials: Trials) -> str:
    """The best trial against the first settings, in a sentence."""
    best, done = best_of(trials), [t for t in trials if t.state.is_finished()]
    if best is None:
        return 'No training has been finished yet.'
    gains = zip(task.first, _gains(trials), strict=False)
    texts = [f'{gain:.2f} above {name}' for name, gain in gains if gain]
    return (
        f'The best of {len(done)} trials is trial {best} with a validation '
        f'mIoU of {trials[best].value:.2f}'
        f'{": " if texts else ""}{" and ".join(texts)}.'
    )


def trial_table(trials: Trials) -> Table:
    """Every trial with its setting and what came of it."""
    columns = {'trial': [*map(str, range(len(trials)))]}
    for name in dict.fromkeys(name for t in trials for name in t.params):
        values = [trial.params.get(name, ABSENT) for trial in trials]
        columns[name] = [*map(value_text, values)]
    columns['mIoU'] = [*map(outcome_text, trials)]
    if (best := best_of(trials)) is not None:
        columns['mIoU'][best] = Bold(columns['mIoU'][best])
    return Table.of_columns(
        columns,
        'Validation mIoU in percent, on the whole split unless the training '
        'was stopped early.',
    )


def best_table(task: Task, trials: Trials) -> Table:
    """The first settings and the best, with what the best gained."""
    tried = [*zip(task.first, trials, _gains(trials), strict=False)]
    if (best := best_of(trials)) is not None:
        tried.append(('the best', trials[best], None))
    rows = [
        [
            name,
            setting_text(trial.params),
            outcome_text(trial),
            ABSENT if gain is None else signed(gain),
        ]
        for name, trial, gain in tried
    ]
    header = ['setting', 'parameters', 'val mIoU', 'gain of the best']
    caption = 'The best setting against those the search began with.'
    return Table(header, rows, caption)


def outcome_text(trial: FrozenTrial) -> str:
    """The validation mIoU, or why there is none."""
    if trial.state == TrialState.COMPLETE:
        return f'{trial.value:.2f}'
    if trial.state == TrialState.PRUNED and trial.value is not None:
        return f'{trial.value:.2f} when stopped at iteration {trial.last_step}'
    return trial.state.name.lower().replace('fail', 'failed')


def _gains(trials: Trials) -> list[float | None]:
    """How much better the best is than every other whole training."""
    best = best_of(trials)
    return [
        (trials[best].value or 0.0) - (trial.value or 0.0)
        if best not in (None, place) and trial.state == TrialState.COMPLETE
        else None
        for place, trial in enumerate(trials)
    ]


def _commands(task: Task, trials: Trials, out: Path) -> list[Block]:
    blocks: list[Block] = ['The search:', Code(task.common['command'])]
    place = best_of(trials)
    if place is None:
        return blocks
    best = trials[place].params
    settings = ','.join(
        f'{key}={value}'
        for key, value in loss_with(task.loss, best).items()
        if key != 'type' and value is not None
    )
    return [
        *blocks,
        'With the same --cfg-options, but for those of the loss: a training '
        'with the best setting, and a comparison over several seeds, on the '
        'test split.',
        Code(
            f'python -m mmseg_margin train {out / BEST_CONFIG}\n'
            f'python -m mmseg_margin compare {task.cfg.filename} --seeds 3 '
            f'--losses ce tuned={best["objective"]}:{settings}'
        ),
    ]


def _pictures(
    study: optuna.Study, trials: Trials, folder: Path
) -> list[Block]:
    """Optuna's own would leave out the trials that were stopped early."""
    whole = {
        place: trial.value or 0.0
        for place, trial in enumerate(trials)
        if trial.state == TrialState.COMPLETE
    }
    if not whole:
        return ['There is nothing to draw yet.']
    with picture(folder / 'history.png', 8, 3.6) as figure:
        axes = figure.subplots()
        _scatter(axes, [*enumerate(trials)])
        best = [*accumulate(whole.values(), max)]
        line = axes.step([*whole], best, where='post', color=RED)[0]
        line.set_label('best so far')
        axes.set(xlabel='trial', ylabel=AXIS)
        figure.legend(loc='outside right upper', frameon=False)
    _draw_slices(trials, folder / 'slices.png')
    blocks: list[Block] = [
        Picture(folder / 'history.png', 'The mIoU of each trial.'),
        Picture(folder / 'slices.png', 'The mIoU over each parameter.', True),
    ]
    if len(whole) < FEWEST_FOR_IMPORTANCE:
        return [*blocks, 'There are too few trials to tell which matter most.']
    evaluator = PedAnovaImportanceEvaluator(target_quantile=BEST_FRACTION)
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    with picture(folder / 'importance.png', 6, 2.6) as figure:
        axes = figure.subplots()
        axes.barh(list(found), list(found.values()), color=BLUE)
        axes.invert_yaxis()  # the parameter that matters most on top
        axes.set_xlabel('importance')
    caption = (
        'How much each parameter decides whether a trial is among the best '
        'quarter (PED-ANOVA).'
    )
    return [*blocks, Picture(folder / 'importance.png', caption)]


def _draw_slices(trials: Trials, path: Path) -> None:
    """The mIoU over each parameter, of the trials that have it."""
    space = {k: d for t in trials for k, d in t.distributions.items()}
    rows = -(-len(space) // COLUMNS)
    with picture(path, 2.8 * COLUMNS, 2.8 * rows) as figure:
        panels = figure.subplots(rows, COLUMNS, sharey=True, squeeze=False)
        for axes in panels.flat[len(space) :]:
            axes.set_axis_off()
        for axes in panels[:, 0]:
            axes.set_ylabel(AXIS)
        for axes, (name, values) in zip(
            panels.flat, space.items(), strict=False
        ):
            points = [(t.params[name], t) for t in trials if name in t.params]
            if isinstance(values, CategoricalDistribution):
                choices = list(values.choices)
                axes.set_xticks(range(len(choices)), map(value_text, choices))
                axes.set_xlim(-0.5, len(choices) - 0.5)
                points = [(choices.index(value), t) for value, t in points]
            else:
                axes.set_xscale('log')
            axes.set_xlabel(name)
            _scatter(axes, points)


def _scatter(axes: Any, points: list[tuple[Any, FrozenTrial]]) -> None:
    for state, (mark, colour, label) in MARKS.items():
        found = [(x, t.value) for x, t in points if t.state == state]
        x, y = zip(*found, strict=True) if found else ((), ())
        axes.scatter(x, y, marker=mark, color=colour, label=label)
