"""Writes the report of a comparison."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mmseg_margin.report.numbers import mean_difference, signed
from mmseg_margin.report.pages import Block, Code, Page, Table

from . import tables
from .figures import curve_blocks, draw_examples
from .results import (
    BASELINE,
    MARGIN_LOSS,
    RESULTS_FILE,
    Results,
    load_results,
    mean_over_seeds,
    save_runs,
)

# The losses that the verdict is about.
OURS = (MARGIN_LOSS, 'JaccardLoss')


def write_report(out: Path, samples: Iterable[dict[str, Any]] = ()) -> Path:
    """Write ``OUT/report/index.html`` and ``report.md`` with pictures.

    All runs stand in ``results.json`` beside them, from which the tables and
    curves can be made again. The comparison may be incomplete.

    Args:
        out: Its folder.
        samples: ``img_path`` and ``gt_seg_map`` of the tested images, of
            which those that were predicted make a mosaic.
    """
    results = load_results({out.name: out})
    first = results.runs[0]
    folder = out / 'report'
    folder.mkdir(parents=True, exist_ok=True)
    save_runs(results.runs, folder / RESULTS_FILE)
    iterations = f'{first.iterations:,}'
    seeds = ', '.join(map(str, results.seeds))
    examples = draw_examples(results, out, samples, folder)
    return Page(
        'Comparison of objectives',
        f'{first.config}, {iterations} iterations, seeds: {seeds}',
        verdict(results),
        {
            'Results': [
                tables.overall_table(results),
                tables.difference_table(results)
                or f'There is no result of {BASELINE} to compare the others '
                'with.',
            ],
            'IoU of each class': [tables.class_table(results)],
            'Curves': curve_blocks(results, folder),
            **({'Examples': [examples]} if examples else {}),
            'Classes and margins': tables.margin_blocks(results, folder),
            'Cost': [tables.cost_table(results)],
            'Settings': _settings(results, iterations, seeds),
        },
        missing_sentences(results),
    ).write(folder)


def missing_sentences(results: Results) -> list[str]:
    """A warning if runs have no result."""
    (label,) = results.compared
    missing = results.missing(label)
    listed = '; '.join(
        f'{name}: seed {", ".join(map(str, seeds))}'
        for name, seeds in missing.items()
    )
    sentence = (
        f'Everything here is provisional: of {len(results.runs)} runs, '
        f'{sum(map(len, missing.values()))} have no result ({listed}).'
    )
    return [sentence] if missing else []


def verdict(results: Results) -> str:
    """Rank by mean mIoU; say how our best loss compares with the baseline."""
    means = dict(
        zip(results.names, mean_over_seeds(results.values())[0], strict=True)
    )
    names = [name for name in means if means[name] >= 0]
    names.sort(key=lambda name: -means[name])
    if not names:
        return 'No run has finished yet, so there is nothing to compare.'
    if len(names) == 1:
        return (
            f'{names[0]} has a mean mIoU of {means[names[0]]:.2f}; no other '
            'objective has a result, so there is nothing to compare it with.'
        )
    winner, second = names[:2]
    parts = [
        f'{winner} has the highest mean mIoU ({means[winner]:.2f}), '
        f'{means[winner] - means[second]:.2f} above {second} '
        f'({means[second]:.2f})'
    ]
    ours = [name for name in names if name in results.terms(*OURS)]
    if ours and ours[0] not in (winner, second):
        parts.append(
            f'{ours[0]} is number {names.index(ours[0]) + 1} of '
            f'{len(names)} ({means[ours[0]]:.2f})'
        )
    subject = next(name for name in [*ours, *names] if name != BASELINE)
    parts.append(_against_baseline(results, subject))
    return '; '.join(parts) + '.'


def _against_baseline(results: Results, subject: str) -> str:
    place = results.names.index(subject)
    difference = mean_difference(results.differences()[0, place])
    if difference is None:
        return (
            f'no seed has been run with both {subject} and {BASELINE}, so '
            'there is no paired difference'
        )
    if difference.low is None:
        return (
            f'the difference of {subject} to {BASELINE} is '
            f'{signed(difference.mean)} with a single seed, which gives no '
            'interval and may be chance'
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


def _settings(results: Results, iterations: str, seeds: str) -> list[Block]:
    first, runs = results.runs[0], results.runs
    rows = {'config': first.config, 'iterations': iterations, 'seeds': seeds}
    rows['start from'] = first.init or 'the initialisation of the config'
    rows |= runs[-1].versions
    commands = list(dict.fromkeys(run.command for run in runs))
    losses = {run.name: run.losses for run in runs}
    caption = 'What all runs have in common, and the versions.'
    return [
        Table(['setting', 'value'], [*rows.items()], caption, numeric=False),
        'The commands:' if len(commands) > 1 else 'The command:',
        Code('\n'.join(commands)),
        'The objectives:',
        Code('\n'.join(f'{name}: {terms}' for name, terms in losses.items())),
    ]
