"""The report of a search: one HTML page, and the same as Markdown."""

from pathlib import Path

import optuna
from optuna.trial import FrozenTrial, TrialState

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.comparison.report.document import (
    Block,
    Code,
    Document,
    Picture,
    Section,
    Table,
)
from mmseg_margin.comparison.report.html_page import render_html
from mmseg_margin.comparison.report.markdown import render_markdown
from mmseg_margin.comparison.report.text import ABSENT, Bold, signed

from .plots import importances, plot_history, plot_importances, plot_slices
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
    warnings = [ONE_TRAINING]
    tested = task.cfg.get('test_dataloader') or {}
    if tested.get('dataset') == task.cfg.val_dataloader.dataset:
        warnings.append(SAME_SPLIT)
    document = Document(
        'Tuning of the margin loss',
        f'{task.study.config}, {task.study.iterations:,} iterations, seed '
        f'{task.seed}',
        summary(shared, list(starts)),
        warnings,
        [
            _best_section(shared, starts),
            Section('All trials', [trial_table(shared)]),
            _pictures_section(shared, folder),
            _commands_section(task, shared),
            _settings_section(task),
        ],
    )
    atomic_write_text(folder / 'report.md', render_markdown(document))
    page = folder / 'index.html'
    atomic_write_text(page, render_html(document))
    return page


def summary(shared: SharedStudy, starts: list[str]) -> str:
    """The best trial against the starting points, in a sentence."""
    best = shared.best
    if best is None or best.value is None:
        return 'No training has been finished yet.'
    gains = [
        f'{best.value - trial.value:.2f} above {name}'
        for name, trial in _start_trials(shared, starts).items()
        if trial.state == TrialState.COMPLETE and trial.value is not None
    ]
    against = f': {" and ".join(gains)}' if gains else ''
    return (
        f'The best of {len(shared.finished)} trials is trial {best.number} '
        f'with a validation mIoU of {best.value:.2f}{against}.'
    )


def trial_table(shared: SharedStudy) -> Table:
    """Every trial with its setting and what came of it."""
    best = shared.best
    names = list(shared.trials[0].params) if shared.trials else []
    rows = []
    for trial in shared.trials:
        outcome = outcome_text(trial)
        if best is not None and trial.number == best.number:
            outcome = Bold(outcome)
        values = [value_text(trial.params[name]) for name in names]
        rows.append([str(trial.number), *values, outcome])
    return Table(
        'Validation mIoU in percent, on the whole split unless the training '
        'was stopped early.',
        ['trial', *names, 'mIoU'],
        rows,
    )


def _start_trials(
    shared: SharedStudy, starts: list[str]
) -> dict[str, FrozenTrial]:
    """The starting points that have been tried, which are the first trials."""
    return dict(zip(starts, shared.trials, strict=False))


def _best_section(shared: SharedStudy, starts: dict[str, Setting]) -> Section:
    best = shared.best
    trials = _start_trials(shared, list(starts))
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
    return Section(
        'Best setting',
        [
            Table(
                'The best setting against those the search began with.',
                ['setting', 'parameters', 'val mIoU', 'gain of the best'],
                rows,
            )
        ],
    )


def _pictures_section(shared: SharedStudy, folder: Path) -> Section:
    title = 'What matters'
    if shared.best is None:
        return Section(title, ['There is nothing to draw yet.'])
    plot_history(shared.trials, folder / 'history.png')
    plot_slices(shared.trials, folder / 'slices.png')
    blocks: list[Block] = [
        Picture('The mIoU of each trial.', folder / 'history.png'),
        Picture(
            'The mIoU over each parameter.', folder / 'slices.png', wide=True
        ),
    ]
    shares = importances(shared.study)
    if shares is None:
        blocks.append('There are too few trials to tell which matter most.')
    else:
        plot_importances(shares, folder / 'importance.png')
        blocks.append(
            Picture(
                'How much each parameter decides whether a trial is among '
                'the best quarter (PED-ANOVA).',
                folder / 'importance.png',
            )
        )
    return Section(title, blocks)


def _commands_section(task: Task, shared: SharedStudy) -> Section:
    config, best = task.cfg.filename, shared.best
    blocks: list[Block] = ['The search:', Code(task.study.command)]
    if best is not None:
        blocks += [
            'With the same --cfg-options, but for those of the loss: a '
            'training with the best setting, '
            'and a comparison over several seeds, on the test split.',
            Code(
                f'python tools/train.py {shared.out / BEST_CONFIG}\n'
                f'python tools/compare.py {config} --seeds 3 --losses ce '
                f'{objective_text(best.params)}'
            ),
        ]
    return Section('Commands', blocks)


def _settings_section(task: Task) -> Section:
    study = task.study
    rows = {
        'start from': study.init or 'the initialisation of the config',
        'loss': setting_text(task.loss),
        **study.versions,
        'optuna': optuna.__version__,
    }
    return Section(
        'Settings',
        [
            Table(
                'What all trials have in common, and the versions.',
                ['setting', 'value'],
                [[name, value] for name, value in rows.items()],
            )
        ],
    )
