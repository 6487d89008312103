"""The report of a comparison: its tables, its plots and a verdict."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from mmseg_margin.report.numbers import ENOUGH, mean_difference, signed
from mmseg_margin.report.pages import Block, Code, Page, Table

from . import plots, tables
from .records import (
    BASELINE,
    RESULTS_FILE,
    Comparison,
    Run,
    read_comparison,
    save_results,
)


def write_report(out: Path, samples: Iterable[dict[str, Any]] = ()) -> Path:
    """Write ``OUT/report/index.html`` and ``report.md`` with pictures.

    All runs stand in ``results.json`` beside them. The comparison may be
    incomplete.

    Args:
        out: Its folder.
        samples: ``img_path`` and ``gt_seg_map`` of the tested images, of
            which those that were predicted make a mosaic.
    """
    comparison, folder = read_comparison(out), out / 'report'
    folder.mkdir(parents=True, exist_ok=True)
    save_results(comparison, folder / RESULTS_FILE)
    frame, settings = comparison.frame(), settings_of(comparison)
    commands = dict.fromkeys(run.command for run in comparison.runs)
    losses = {run.name: run.losses for run in comparison.runs}
    no_baseline = f'There is no other result to compare with {BASELINE}.'
    sections: dict[str, list[Block]] = {
        'Results': [
            tables.overall_table(frame),
            tables.difference_table(frame) or no_baseline,
        ],
        'IoU of each class': [tables.class_table(comparison, frame)],
        'Curves': plots.curve_blocks(comparison, folder),
        'Examples': [plots.draw_examples(comparison, out, samples, folder)],
        'Cost': [tables.cost_table(frame)],
        'Settings': [
            Table(
                ['setting', 'value'],
                [*settings.items()],
                'What the runs have in common, and their versions.',
                numeric=False,
            ),
            'The commands:',
            Code('\n'.join(commands)),
            'The objectives:',
            Code('\n'.join(f'{k}: {terms}' for k, terms in losses.items())),
        ],
    }
    return Page(
        'Comparison of objectives',
        '{config}, {iterations} iterations, seeds: {seeds}'.format(**settings),
        verdict(comparison, frame),
        sections,
        warnings_about(comparison),
    ).write(folder)


def settings_of(comparison: Comparison) -> dict[str, str]:
    """What the runs have in common, and every version that one ran with."""
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
        for package, version in run.versions.items():
            settings.setdefault(package, []).append(version)
    return {
        name: ', '.join(dict.fromkeys(map(str, values)))
        for name, values in settings.items()
    }


def warnings_about(comparison: Comparison) -> list[str]:
    """What a reader has to know about single runs."""
    runs, done = comparison.runs, comparison.done
    warnings = []
    if missing := [str(run) for run in runs if not run.is_done()]:
        warnings.append(
            f'Everything here is provisional: of {len(runs)} runs, '
            f'{len(missing)} have no result: {"; ".join(missing)}.'
        )
    warnings += [f'{run} failed: {run.error}' for run in runs if run.error]
    warnings += [
        f'{run} was resumed at iteration {", ".join(map(str, run.resumed))} '
        'after an interruption, and drew other samples from there.'
        for run in runs
        if run.resumed
    ]
    if not predict_one_class(done):
        warnings += [
            f'{run} predicts {_only_class(comparison, run)} only: train '
            'longer.'
            for run in done
            if predict_one_class([run])
        ]
    return warnings


def predict_one_class(runs: list[Run]) -> bool:
    return all(len(run.predicted) == 1 for run in runs)


def _only_class(comparison: Comparison, run: Run) -> str:
    return comparison.common['classes'][run.predicted[0]]


def verdict(comparison: Comparison, frame: pd.DataFrame) -> str:
    """The best mean mIoU, and whether it differs from the baseline's."""
    done = comparison.done
    if not done:
        return 'No run has finished yet, so there is nothing to compare.'
    if predict_one_class(done):
        found = {_only_class(comparison, run) for run in done}
        what = f'{found.pop()} only' if len(found) == 1 else 'a single class'
        return f'Every network predicts {what}: train longer.'
    means = frame['mIoU'].groupby('objective', sort=False).mean().dropna()
    means = means.round(2).sort_values(ascending=False, kind='stable')
    names, best = means.index.tolist(), means.iloc[0]
    if len(names) == 1:
        return (
            f'{names[0]} has a mean mIoU of {best:.2f}; no other objective '
            'has a result, so there is nothing to compare it with.'
        )
    tied = [name for name in names if means[name] == best]
    text = (
        f'{names[0]} has the highest mean mIoU ({best:.2f}), '
        f'{best - means.iloc[1]:.2f} above {names[1]} ({means.iloc[1]:.2f}); '
    )
    if len(tied) > 1:
        text = f'{" and ".join(tied)} tie at a mean mIoU of {best:.2f}; '
    subject = next(name for name in names if name != BASELINE)
    return f'{text}{_against_baseline(frame, subject)}.'


def _against_baseline(frame: pd.DataFrame, subject: str) -> str:
    found = tables.differences(frame)
    own = found['mIoU'][found.index.get_level_values('objective') == subject]
    difference = mean_difference(own)
    if difference is None:
        return (
            f'no seed has been run with both {subject} and {BASELINE}, so '
            'there is no paired difference'
        )
    if difference.n < ENOUGH:
        return (
            f'the difference of {subject} to {BASELINE} is '
            f'{signed(difference.mean)} with {difference.n} seed(s), too few '
            'to tell it from chance'
        )
    meaning = {
        1: f'so {subject} is better than {BASELINE} here',
        -1: f'so {subject} is worse than {BASELINE} here',
        0: 'which covers 0, so neither is shown to be better',
    }[difference.sign]
    return (
        f'the 95 % interval of the paired difference of {subject} to '
        f'{BASELINE} is {difference.interval_text} over {difference.n} '
        f'seeds, {meaning}'
    )
