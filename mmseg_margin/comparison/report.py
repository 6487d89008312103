"""The report of a comparison, and the summary of several.

A report has the paper's Tables 1 and 2 and a verdict. A summary has a table
for each metric, with a column for each comparison.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.errors import SettingError
from mmseg_margin.report.numbers import mean_difference, signed
from mmseg_margin.report.pages import Block, Code, Page, Table

from . import figures, tables
from .runs import (
    BASELINE,
    FITTED,
    RESULTS_FILE,
    Results,
    load_results,
    mean_over_seeds,
    save_runs,
)

# The losses that the verdict is about.
OURS = ('MarginCalibrationLoss', 'JaccardLoss')


def write_report(out: Path, samples: Iterable[dict[str, Any]] = ()) -> Path:
    """Write ``OUT/report/index.html`` and ``report.md`` with pictures.

    All runs stand in ``results.json`` beside them, from which the tables and
    curves can be made again. The comparison may be incomplete.

    Args:
        out: Its folder.
        samples: ``img_path`` and ``gt_seg_map`` of the tested images, of
            which those that were predicted make a mosaic.
    """
    results = load_results({'': out})
    runs, folder = results.runs, out / 'report'
    folder.mkdir(parents=True, exist_ok=True)
    save_runs(runs, folder / RESULTS_FILE)
    (settings,) = settings_of(results)
    subtitle = '{config}, {iterations} iterations, seeds: {seeds}'
    differences = tables.difference_table(results)
    commands = list(dict.fromkeys(run.command for run in runs))
    losses = {run.name: run.losses for run in runs}
    sections: dict[str, list[Block]] = {
        'Results': [
            tables.overall_table(results),
            differences
            or f'There is no result of {BASELINE} to compare the others with.',
        ],
        'IoU of each class': [tables.class_table(results)],
        'Fitted offsets': [
            figures.draw_offsets(results, results.names, folder)
        ],
        'Curves': figures.curve_blocks(results, folder),
        'Examples': [figures.draw_examples(results, out, samples, folder)],
        'Classes and margins': tables.margin_blocks(results, folder),
        'Cost': [tables.cost_table(results)],
        'Settings': [
            Table(
                ['setting', 'value'],
                [*(settings | runs[-1].versions).items()],
                'What all runs have in common, and the versions.',
                numeric=False,
            ),
            'The commands:' if len(commands) > 1 else 'The command:',
            Code('\n'.join(commands)),
            'The objectives:',
            Code('\n'.join(f'{k}: {terms}' for k, terms in losses.items())),
        ],
    }
    warnings = [
        f'Everything here is provisional: of {len(runs)} runs, '
        f'{sum(not run.is_done() for run in runs)} have no result: {lacks}.'
        for lacks in results.missing().values()
    ]
    return Page(
        'Comparison of objectives',
        subtitle.format(**settings),
        verdict(results),
        sections,
        warnings,
    ).write(folder)


def write_summary(places: list[str], folder: Path) -> Path:
    """Write ``index.html``, ``report.md``, pictures, CSV and JSON.

    The places of the comparisons are ``PLACE`` or ``LABEL=PLACE``.
    """
    results = load_results(by_label(places))
    # The best average rank first, and only what has a result.
    ranks = zip(results.ranks().tolist(), results.names, strict=True)
    names = [name for rank, name in sorted(ranks) if rank > 0]
    results = Results(results.compared, names)
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(tables.as_dict(results), indent=1)
    atomic_write_text(folder / 'summary.json', text)
    atomic_write_text(folder / 'summary.csv', tables.as_csv(results))
    settings = settings_of(results)
    rows = zip(results.compared, settings, strict=True)
    sections: dict[str, list[Block]] = {
        'mIoU': [
            figures.draw_differences(results, folder),
            tables.metric_table(results, 'mIoU'),
        ],
        'Tail mIoU': [tables.metric_table(results, 'mIoU_tail')],
        'Fitted offsets': [
            tables.metric_table(results, f'{FITTED}mIoU'),
            figures.draw_offsets(results, [BASELINE], folder),
        ],
        'Cost': [tables.time_table(results)],
        'Comparisons': [
            Table(
                ['comparison', *settings[0]],
                [[label, *row.values()] for label, row in rows],
                'What was compared. All runs stand in summary.csv, the '
                'figures of the tables in summary.json.',
                numeric=False,
            )
        ],
    }
    if not results.is_fitted:
        del sections['Fitted offsets']
    return Page(
        'Summary of comparisons',
        ', '.join(results.compared),
        summary_sentence(results),
        sections,
        [f'{k} lacks {lacks}.' for k, lacks in results.missing().items()],
    ).write(folder)


def by_label(places: list[str]) -> dict[str, Path]:
    """Comparisons that are given as ``PLACE`` or ``LABEL=PLACE``."""
    labelled: dict[str, Path] = {}
    given: set[Path] = set()
    for text in places:
        label, _, place = text.rpartition('=')
        path = Path(place).resolve()
        folder = path.parent if path.is_file() else path
        if folder.name == 'report':
            path = folder = folder.parent
        if path in given:
            raise SettingError(f'{place} is given twice: leave one out.')
        given.add(path)
        label = label or folder.name
        if label in labelled:
            raise SettingError(
                f'Two comparisons are called {label!r}: write LABEL={place} '
                'for one of them.'
            )
        labelled[label] = Path(place)
    return labelled


def settings_of(results: Results) -> list[dict[str, str]]:
    """What all runs of a comparison have in common, for each comparison."""
    return [
        {
            'config': runs[0].config,
            'iterations': f'{runs[0].iterations:,}',
            'start from': runs[0].init or 'the initialisation of the config',
            'classes': str(len(runs[0].classes)),
            'seeds': ', '.join(map(str, sorted({run.seed for run in runs}))),
            'finished runs': str(sum(run.is_done() for run in runs)),
        }
        for runs in results.compared.values()
    ]


def verdict(results: Results) -> str:
    """Rank by mean mIoU; say how our best loss compares with the baseline."""
    scores = mean_over_seeds(results.values())[:, 0]
    means = dict(zip(results.names, scores, strict=True))
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
    ours = [name for name in names if name in results.losses_of(*OURS)]
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
    difference = mean_difference(results.differences()[place, 0])
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


def summary_sentence(results: Results) -> str:
    """The objectives with the best average ranks, and their differences."""
    texts = []
    for i, name in enumerate(results.names[:2]):
        text = f'{name} ({results.ranks()[i]:.2f}'
        difference = mean_difference(mean_over_seeds(results.differences()[i]))
        if difference and name != BASELINE:
            text += f', {signed(difference.mean)} to {BASELINE} in the mean '
            text += difference.interval_text
        texts.append(f'{text.strip()})')
    if not texts:
        return 'No run has finished yet, so there is nothing to sum up.'
    return (
        f'Over {len(results.compared)} comparisons the best average rank is '
        f'that of {"; the second best is ".join(texts)}.'
    )
