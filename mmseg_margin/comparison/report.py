"""The report of a comparison: the paper's Tables 1 and 2, and a verdict."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from mmseg_margin.functional import OffsetSettings
from mmseg_margin.losses.margin_calibration_loss import OFFSET_SETTINGS
from mmseg_margin.report.numbers import (
    ABSENT,
    difference_cells,
    mean_cells,
    mean_difference,
    number_cells,
    signed,
)
from mmseg_margin.report.pages import Block, Code, Page, Picture, Table
from mmseg_margin.stats import ClassStats, plot_stats
from mmseg_margin.stats.display import offset_columns

from .figures import curve_blocks, draw_examples, draw_offsets
from .runs import (
    BASELINE,
    FITTED,
    RESULTS_FILE,
    Results,
    by_name,
    load_results,
    mean_over_seeds,
    save_runs,
)

MARGIN_LOSS = 'MarginCalibrationLoss'
# The losses that the verdict is about.
OURS = (MARGIN_LOSS, 'JaccardLoss')
METRICS = {
    'aAcc': 'pixel accuracy',
    'mIoU': 'mIoU',
    'mIoU_head': 'head mIoU',
    'mIoU_middle': 'middle mIoU',
    'mIoU_tail': 'tail mIoU',
}
FITTED_METRICS = {f'{FITTED}mIoU': 'mIoU with fitted offsets'}
CAPTIONS = {
    'overall': 'Mean and standard deviation over the seeds, in percent; the '
    'best mean is bold. Head, middle and tail are thirds of the classes by '
    'their pixels in the training set.',
    'fitted': ' Offsets are fitted to each trained network on training '
    'images; their gain has its 95 % interval over the seeds.',
    'differences': f'Mean difference to {BASELINE} in points, each run '
    f'against the run of {BASELINE} with the same seed, and its 95 % interval '
    "(Student's t); bold where it excludes 0. A single seed gives no "
    'interval. The intervals are not corrected for being many.',
    'classes': 'IoU in percent, mean and standard deviation over the seeds; '
    'the best mean is bold. The share is that of the training pixels.',
    'cost': 'Median over the seeds of the seconds of an iteration, and the '
    'largest peak memory of the process.',
}


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
    first, last = results.runs[0], results.runs[-1]
    folder = out / 'report'
    folder.mkdir(parents=True, exist_ok=True)
    save_runs(results.runs, folder / RESULTS_FILE)
    settings = {
        'config': first.config,
        'iterations': f'{first.iterations:,}',
        'seeds': ', '.join(map(str, results.seeds)),
        'start from': first.init or 'the initialisation of the config',
    }
    commands = list(dict.fromkeys(run.command for run in results.runs))
    losses = {run.name: run.losses for run in results.runs}
    missing = results.missing(out.name)
    listed = '; '.join(f'{k}: seed {seeds}' for k, seeds in missing.items())
    provisional = (
        f'Everything here is provisional: of {len(results.runs)} runs, '
        f'{sum(not run.is_done() for run in results.runs)} have no result '
        f'({listed}).'
    )
    fitted = by_name(run for run in results.runs if run.fitted)
    panels = [('', fitted)] if fitted else []
    sections: dict[str, list[Block]] = {
        'Results': [
            overall_table(results),
            difference_table(results)
            or f'There is no result of {BASELINE} to compare the others with.',
        ],
        'IoU of each class': [class_table(results)],
        'Fitted offsets': [draw_offsets(panels, folder / 'offsets.png')],
        'Curves': curve_blocks(results, folder),
        'Examples': [draw_examples(results, out, samples, folder)],
        'Classes and margins': margin_blocks(results, folder),
        'Cost': [cost_table(results)],
        'Settings': [
            Table(
                ['setting', 'value'],
                [*(settings | last.versions).items()],
                'What all runs have in common, and the versions.',
                numeric=False,
            ),
            'The commands:' if len(commands) > 1 else 'The command:',
            Code('\n'.join(commands)),
            'The objectives:',
            Code('\n'.join(f'{k}: {terms}' for k, terms in losses.items())),
        ],
    }
    return Page(
        'Comparison of objectives',
        f'{first.config}, {first.iterations:,} iterations, seeds: '
        f'{settings["seeds"]}',
        verdict(results),
        sections,
        [provisional] if missing else [],
    ).write(folder)


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


def metrics_of(results: Results) -> dict[str, str]:
    """What the tables show, with the titles of the columns."""
    return METRICS | (FITTED_METRICS if results.is_fitted else {})


def overall_table(results: Results) -> Table:
    """Table 1: every metric of every objective."""
    columns = {'objective': results.names}
    for metric, title in metrics_of(results).items():
        columns[title] = mean_cells(results.values(metric)[0])
    if results.is_fitted:
        columns['gain by fitting'] = difference_cells(results.gains()[0])
    finished = np.isfinite(results.values()[0]).sum(axis=1)
    columns['seeds'] = [str(number) for number in finished]
    fitted = CAPTIONS['fitted'] if results.is_fitted else ''
    return Table.of_columns(columns, CAPTIONS['overall'] + fitted)


def difference_table(results: Results) -> Table | None:
    """Every objective against the baseline, seed by seed."""
    others = [i for i, n in enumerate(results.names) if n != BASELINE]
    if not others or np.isnan(results.of_baseline(results.values())).all():
        return None
    columns = {'objective': [results.names[i] for i in others]}
    for metric, title in metrics_of(results).items():
        differences = results.differences(metric)[0]
        columns[title] = difference_cells(differences[others])
    return Table.of_columns(columns, CAPTIONS['differences'])


def class_table(results: Results) -> Table:
    """Table 2: IoU of every class, most frequent class first."""
    first, names = results.runs[0], results.names
    kinds = {'': '', FITTED: ', fitted'} if results.is_fitted else {'': ''}
    total = max(sum(first.class_counts), 1)
    rows = []
    for k in first.class_order:
        values = [results.values(f'{kind}IoU/{k}')[0] for kind in kinds]
        fraction = f'{100 * first.class_counts[k] / total:.3f}'
        cells = mean_cells(np.concatenate(values))
        rows.append([first.classes[k], fraction, *cells])
    titles = [name + kind for kind in kinds.values() for name in names]
    header = ['class', 'share %', *titles]
    return Table(header, rows, CAPTIONS['classes'])


def margin_blocks(results: Results, folder: Path) -> list[Block]:
    """Pixels and margin-offsets of the classes, and a picture of both."""
    first = results.runs[0]
    classes, counts = first.classes, first.class_counts
    stats = ClassStats(classes, counts, [0] * len(counts), counts)
    losses = results.terms(MARGIN_LOSS) or {'the default parameters': {}}
    name, loss = next(iter(losses.items()))
    given = {key: loss[key] for key in OFFSET_SETTINGS if key in loss}
    settings = OffsetSettings(**given)
    texts = [
        [ABSENT if text == '-' else text for text in pair]
        for pair in offset_columns(stats, settings)
    ]
    table = Table(
        ['class', 'pixels', 'share %', 'rho_0k', 'rho_k0'],
        [
            [classes[k], f'{counts[k]:,}', f'{100 * p:.4f}', *texts[k]]
            for k in first.class_order
            for p in [counts[k] / max(stats.total, 1)]
        ],
        'Labelled pixels of the training set, and the margin-offsets '
        f'{"of" if loss else "for"} {name} (tau = '
        f'{settings.tau_for(counts):g}, upsilon = {settings.upsilon:g}). A '
        'class that is absent has none.',
    )
    if all(rho_0k == ABSENT for rho_0k, _ in texts):
        return [table]
    plot_stats(stats, folder / 'classes.png', settings)
    caption = 'Shares and margin-offsets, most frequent class on top.'
    return [table, Picture(folder / 'classes.png', caption, wide=True)]


def cost_table(results: Results) -> Table:
    """Time and memory, and their ratio to the baseline."""
    columns: list[list[str]] = [results.names]
    for figure, digits in (('seconds', '.4g'), ('memory', ',.0f')):
        costs, ratios = results.costs(figure)
        columns += number_cells(costs[0], digits), number_cells(ratios[0])
    ratio = f'ratio to {BASELINE}'
    header = ['objective', 's / iteration', ratio, 'peak MiB', ratio]
    return Table(header, [*zip(*columns, strict=True)], CAPTIONS['cost'])
