"""The report of a search: one HTML page, and the same as Markdown."""

from collections.abc import Mapping, Sequence
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

from .search_space import SearchSpace, setting_text, value_text
from .study import SharedStudy, best_of, count_finished, is_whole

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
    common: dict[str, Any]  # of a run of this config
    space: SearchSpace
    init: str | None = None  # the checkpoint that every training starts from


def write_report(task: Task, shared: SharedStudy) -> Path:
    """Write ``OUT/report/index.html`` and ``report.md`` with pictures."""
    folder = shared.out / 'report'
    folder.mkdir(parents=True, exist_ok=True)
    # Once, because other processes finish trials in the meantime.
    trials, common = shared.trials, task.common
    best = best_of(trials)
    first = dict(zip(task.space.first, trials, strict=False))
    numbered = {str(trial.number): trial for trial in trials}
    tested = task.cfg.get('test_dataloader') or {}
    same_split = tested.get('dataset') == task.cfg.val_dataloader.dataset
    settings = {
        'start from': common['init'] or 'the initialisation of the config',
        'loss': setting_text(task.space.own),
        **common['versions'],
        'optuna': optuna.__version__,
    }
    caption = 'What all trials have in common, and the versions.'
    table = Table(['setting', 'value'], [*settings.items()], caption, False)
    return Page(
        'Tuning of the loss',
        f'{common["config"]}, {common["iterations"]:,} iterations, '
        f'seed {task.space.seed}',
        summary(task, trials),
        {
            'Best setting': [
                trial_table(
                    first | ({'the best': best} if best else {}),
                    best,
                    'The best setting against those the search began with.',
                )
            ],
            'All trials': [
                trial_table(
                    numbered,
                    best,
                    'Validation mIoU in percent, on the whole split unless '
                    'the training was stopped early.',
                )
            ],
            'What matters': _pictures(shared.study, trials, folder),
            'Commands': _commands(task, best, shared.out),
            'Settings': [table],
        },
        WARNINGS if same_split else WARNINGS[:1],
    ).write(folder)


def summary(task: Task, trials: Trials) -> str:
    """The best trial against the first settings, in a sentence."""
    best = best_of(trials)
    if best is None:
        return 'No training has been finished yet.'
    first = zip(task.space.first, trials, strict=False)
    gains = [(_gain(best, trial), name) for name, trial in first]
    texts = [f'{gain:.2f} above {name}' for gain, name in gains if gain]
    return (
        f'The best of {count_finished(trials)} trials is trial {best.number} '
        f'with a validation mIoU of {best.value:.2f}'
        f'{": " if texts else ""}{" and ".join(texts)}.'
    )


def trial_table(
    named: Mapping[str, FrozenTrial], best: FrozenTrial | None, caption: str
) -> Table:
    """Trials with their settings and what came of them."""
    columns, trials = {'trial': [*named]}, named.values()
    for name in dict.fromkeys(name for t in trials for name in t.params):
        values = [trial.params.get(name, ABSENT) for trial in trials]
        columns[name] = [*map(value_text, values)]
    columns['mIoU'] = [
        Bold(outcome_text(t)) if t is best else outcome_text(t) for t in trials
    ]
    columns['gain of the best'] = [
        signed(gain) if gain else ABSENT
        for gain in (_gain(best, trial) for trial in trials)
    ]
    return Table.of_columns(columns, caption)


def _gain(best: FrozenTrial | None, trial: FrozenTrial) -> float:
    """How much better the best is than another whole training."""
    if not best or not is_whole(trial):
        return 0.0
    return (best.value or 0.0) - (trial.value or 0.0)


def outcome_text(trial: FrozenTrial) -> str:
    """The validation mIoU, or why there is none."""
    if is_whole(trial):
        return f'{trial.value:.2f}'
    if trial.state == TrialState.PRUNED and trial.value is not None:
        return f'{trial.value:.2f} when stopped at iteration {trial.last_step}'
    return trial.state.name.lower().replace('fail', 'failed')


def _commands(task: Task, best: FrozenTrial | None, out: Path) -> list[Block]:
    search: list[Block] = ['The search:', Code(task.common['command'])]
    if best is None:
        return search
    settings = ','.join(
        f'{key}={value}'
        for key, value in task.space.loss(best.params).items()
        if key != 'type' and value is not None
    )
    return [
        *search,
        'With the same --cfg-options, but for those of the loss: a training '
        'with the best setting, and a comparison over several seeds, on the '
        'test split.',
        Code(
            f'python -m mmseg_margin train {out / BEST_CONFIG}\n'
            f'python -m mmseg_margin compare {task.cfg.filename} --seeds 3 '
            f'--losses ce tuned={best.params["objective"]}:{settings}'
        ),
    ]


def _pictures(
    study: optuna.Study, trials: Trials, folder: Path
) -> list[Block]:
    """Optuna's own would leave out the trials that were stopped early."""
    whole = [*filter(is_whole, trials)]
    if not whole:
        return ['There is nothing to draw yet.']
    history = Picture(folder / 'history.png', 'The mIoU of each trial.')
    with picture(history.file, 8, 3.6) as figure:
        axes = figure.subplots()
        _scatter(axes, [(t.number, t) for t in trials])
        best = [*accumulate((t.value or 0.0 for t in whole), max)]
        line: dict[str, Any] = {'color': RED, 'label': 'best so far'}
        axes.step([t.number for t in whole], best, where='post', **line)
        axes.set(xlabel='trial', ylabel=AXIS)
        figure.legend(loc='outside right upper', frameon=False)
    caption = 'The mIoU over each parameter.'
    slices = Picture(folder / 'slices.png', caption, wide=True)
    _draw_slices(trials, slices.file)
    if len(whole) < FEWEST_FOR_IMPORTANCE:
        few = 'There are too few trials to tell which matter most.'
        return [history, slices, few]
    importance = Picture(
        folder / 'importance.png',
        'How much each parameter decides whether a trial is among the best '
        'quarter (PED-ANOVA).',
    )
    evaluator = PedAnovaImportanceEvaluator(target_quantile=BEST_FRACTION)
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    with picture(importance.file, 6, 2.6) as figure:
        axes = figure.subplots()
        axes.barh(list(found), list(found.values()), color=BLUE)
        axes.invert_yaxis()  # the parameter that matters most on top
        axes.set_xlabel('importance')
    return [history, slices, importance]


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
        # Not strict: the last row may have more panels than parameters.
        for axes, name in zip(panels.flat, space, strict=False):
            points = [(t.params[name], t) for t in trials if name in t.params]
            values = space[name]
            if isinstance(values, CategoricalDistribution):
                choices = list(values.choices)
                axes.set_xticks(range(len(choices)), map(value_text, choices))
                axes.set_xlim(-0.5, len(choices) - 0.5)
                points = [(choices.index(value), t) for value, t in points]
            else:
                axes.set_xscale('log')
            axes.set_xlabel(name)
            _scatter(axes, points)


def _scatter(axes: Any, points: Sequence[tuple[Any, FrozenTrial]]) -> None:
    for state, (mark, colour, label) in MARKS.items():
        found = [(x, t.value) for x, t in points if t.state == state]
        x, y = zip(*found, strict=True) if found else ((), ())
        axes.scatter(x, y, marker=mark, color=colour, label=label)
