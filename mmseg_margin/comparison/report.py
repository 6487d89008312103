"""The report of a comparison: its tables, its plots and a verdict."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from mmseg_margin.report.numbers import ENOUGH, mean_difference
from mmseg_margin.report.pages import Block, Page, Table

from . import plots, tables
from .records import (
    BASELINE,
    RESULTS_FILE,
    Comparison,
    read_comparison,
    save_results,
)


def write_report(out: Path, samples: Iterable[dict[str, Any]] = ()) -> Path:
    """Write ``OUT/report/index.html`` and return its path.

    All runs stand in ``results.json`` beside them. The comparison may be
    incomplete.

    Args:
        out: Its folder.
        samples: ``img_path`` and ``gt_seg_map`` of some tested images, whose
            predictions are shown.
    """
    comparison, folder = read_comparison(out), out / 'report'
    folder.mkdir(parents=True, exist_ok=True)
    save_results(comparison, folder / RESULTS_FILE)
    frame, settings = comparison.frame(), settings_of(comparison)
    no_pairs = f'No seed has been run with {BASELINE} and another objective.'
    sections: dict[str, list[Block]] = {
        'Results': [
            tables.overall_table(frame),
            tables.difference_table(frame) or no_pairs,
        ],
        'IoU of each class': [tables.class_table(comparison, frame)],
        'Curves': [plots.draw_curves(comparison, folder)],
        'Examples': [plots.draw_examples(comparison, out, samples, folder)],
        'Settings': [
            Table(
                {'setting': settings.keys(), 'value': settings.values()},
                'What the runs have in common, and how they differ.',
                numeric=False,
            )
        ],
    }
    page = Page(
        'Comparison of objectives',
        '{config}, {iterations} iterations, seeds: {seeds}'.format(**settings),
        verdict(comparison),
        sections,
        warnings_about(comparison),
    )
    page.write(folder / 'index.html')
    return folder / 'index.html'


def settings_of(comparison: Comparison) -> dict[str, str]:
    """Settings of all runs; versions and commands may have several values."""
    common, runs = comparison.common, comparison.runs
    settings = {
        'config': [common['config']],
        'iterations': [f'{common["iterations"]:,}'],
        'start from': [
            run.start or 'the initialisation of the config' for run in runs
        ],
        'classes': [len(common['classes'])],
        'seeds': sorted(run.seed for run in runs),
        'finished runs': [len(comparison.done)],
    }
    for run in runs:
        settings[f'objective {run.name}'] = run.losses
        for package, version in run.versions.items():
            settings.setdefault(package, []).append(version)
    settings['commands'] = [run.command for run in runs]
    return {
        name: ', '.join(dict.fromkeys(map(str, values)))
        for name, values in settings.items()
    }


def warnings_about(comparison: Comparison) -> list[str]:
    """What a reader has to know about single runs."""
    classes, warnings = comparison.common['classes'], []
    undone = len(comparison.runs) - len(comparison.done)
    if undone:
        warnings.append(
            f'Everything here is provisional: of {len(comparison.runs)} runs, '
            f'{undone} have no result.'
        )
    for run in comparison.runs:
        if run.error or not run.is_done():
            reason = run.error or 'it has not finished'
            warnings.append(f'{run} is incomplete: {reason}')
        if run.resumed:
            warnings.append(
                f'{run} was interrupted and resumed at iteration '
                f'{", ".join(map(str, run.resumed))}; from there it drew '
                'other samples than the others.'
            )
        if len(run.predicted) == 1:
            name = classes[run.predicted[0]]
            warnings.append(f'{run} predicts {name} only: train longer.')
    return warnings


def verdict(comparison: Comparison) -> str:
    """The best mean mIoU, and whether it differs from the baseline's."""
    done, frame = comparison.done, comparison.frame()
    if not done:
        return 'No run has finished yet, so there is nothing to compare.'
    if all(len(run.predicted) == 1 for run in done):
        found = {comparison.common['classes'][r.predicted[0]] for r in done}
        names = ' or '.join(sorted(found))
        return f'Every network predicts {names} only: train longer.'
    means = frame['mIoU'].groupby('objective', sort=False).mean().dropna()
    means = means.round(2).sort_values(ascending=False, kind='stable')
    names, best = means.index.tolist(), means.iloc[0]
    tied = [name for name in names if means[name] == best]
    if len(names) == 1:
        return (
            f'{names[0]} has a mean mIoU of {best:.2f}; no other objective '
            'has a result, so there is nothing to compare it with.'
        )
    if len(tied) > 1:
        text = f'{" and ".join(tied)} tie at a mean mIoU of {best:.2f}'
    else:
        second = means.iloc[1]
        text = (
            f'{names[0]} has the highest mean mIoU ({best:.2f}), '
            f'{best - second:.2f} above {names[1]} ({second:.2f})'
        )
    subject = next(name for name in names if name != BASELINE)
    return f'{text}; {_against_baseline(frame, subject)}.'


def _against_baseline(frame: pd.DataFrame, subject: str) -> str:
    pairs = tables.differences(frame)
    own = pairs['mIoU'][pairs.index.get_level_values('objective') == subject]
    difference = mean_difference(own)
    if difference is None:
        return f'no seed has been run with both {subject} and {BASELINE}'
    meaning = {
        1: f'so {subject} is better than {BASELINE} here',
        -1: f'so {subject} is worse than {BASELINE} here',
        0: 'which covers 0, so neither is shown to be better',
    }[difference.sign]
    if difference.n < ENOUGH:
        meaning = 'too few to tell it from chance'
    return (
        f'the paired difference of {subject} to {BASELINE} (and its 95 % '
        f'interval) is {difference} over {difference.n} seed(s), {meaning}'
    )
