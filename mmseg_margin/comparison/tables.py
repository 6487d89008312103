"""The tables of a report and of a summary, and the files of a summary."""

import csv
import io
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import gmean

from mmseg_margin.functional import OffsetSettings
from mmseg_margin.losses.margin_calibration_loss import OFFSET_SETTINGS
from mmseg_margin.report import numbers
from mmseg_margin.report.numbers import ABSENT, difference_cells, mean_cells
from mmseg_margin.report.pages import Block, Picture, Table
from mmseg_margin.stats import ClassStats, plot_stats
from mmseg_margin.stats.display import offset_columns

from .runs import BASELINE, FITTED, Results, Run, mean_over_seeds

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
    'mIoU': 'mIoU in percent, mean and standard deviation over the seeds; the '
    'best mean is bold. The rank is that among the objectives of a '
    'comparison, averaged over the comparisons. The difference to '
    f'{BASELINE} is taken seed by seed and averaged over the comparisons, '
    'with its 95 % interval over the comparisons, bold where it excludes 0; '
    'the worst is that of a single comparison.',
    'mIoU_tail': 'The same for the third of the classes with the fewest '
    'pixels in the training set.',
    f'{FITTED}mIoU': 'mIoU with offsets fitted to each trained network on '
    'training images. The gain is that over the network without them.',
    'time': 'Time of a training iteration as a multiple of that of '
    f'{BASELINE} (median within a run and over the seeds), and its geometric '
    'mean.',
}


def metrics_of(results: Results) -> dict[str, str]:
    """What the tables show, with the titles of the columns."""
    return METRICS | (FITTED_METRICS if results.is_fitted else {})


def overall_table(results: Results) -> Table:
    """Table 1: every metric of every objective."""
    columns = {'objective': results.names}
    for metric, title in metrics_of(results).items():
        columns[title] = mean_cells(results.values(metric)[:, 0])
    caption = CAPTIONS['overall']
    if results.is_fitted:
        columns['gain by fitting'] = difference_cells(
            results.values('gain')[:, 0]
        )
        caption += CAPTIONS['fitted']
    finished = np.isfinite(results.values()[:, 0]).sum(axis=1)
    columns['seeds'] = [str(number) for number in finished]
    return Table.of_columns(columns, caption)


def difference_table(results: Results) -> Table | None:
    """Every objective against the baseline, seed by seed."""
    others = [i for i, n in enumerate(results.names) if n != BASELINE]
    if not others or np.isnan(results.of_baseline(results.values())).all():
        return None
    columns = {'objective': [results.names[i] for i in others]}
    for metric, title in metrics_of(results).items():
        differences = results.differences(metric)[others, 0]
        columns[title] = difference_cells(differences)
    return Table.of_columns(columns, CAPTIONS['differences'])


def class_table(results: Results) -> Table:
    """Table 2: IoU of every class, most frequent class first."""
    first, names = results.runs[0], results.names
    kinds = {'': '', FITTED: ', fitted'} if results.is_fitted else {'': ''}
    total = max(sum(first.class_counts), 1)
    rows = []
    for k in first.class_order:
        values = [results.values(f'{kind}IoU/{k}')[:, 0] for kind in kinds]
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
    losses = results.losses_of('MarginCalibrationLoss')
    name, loss = next(iter(losses.items()), ('the default parameters', {}))
    given = {key: loss[key] for key in OFFSET_SETTINGS if key in loss}
    settings = OffsetSettings(**given)
    offsets = [
        [ABSENT if text == '-' else text for text in pair]
        for pair in offset_columns(stats, settings)
    ]
    table = Table(
        ['class', 'pixels', 'share %', 'rho_0k', 'rho_k0'],
        [
            [classes[k], f'{counts[k]:,}', f'{100 * p:.4f}', *offsets[k]]
            for k in first.class_order
            for p in [counts[k] / max(stats.total, 1)]
        ],
        'Labelled pixels of the training set, and the margin-offsets '
        f'{"of" if loss else "for"} {name} (tau = '
        f'{settings.tau_for(counts):g}, upsilon = {settings.upsilon:g}). A '
        'class that is absent has none.',
    )
    if all(rho_0k == ABSENT for rho_0k, _ in offsets):
        return [table]
    path = folder / 'classes.png'
    plot_stats(stats, path, settings)
    caption = 'Shares and margin-offsets, most frequent class on top.'
    return [table, Picture(path, caption, wide=True)]


def cost_table(results: Results) -> Table:
    """Time and memory, and their ratio to the baseline."""
    columns: list[list[str]] = [results.names]
    for figure, digits in (('seconds', '.4g'), ('memory', ',.0f')):
        costs, ratios = results.costs(figure)
        columns += (
            numbers.number_cells(costs[:, 0], digits),
            numbers.number_cells(ratios[:, 0]),
        )
    ratio = f'ratio to {BASELINE}'
    header = ['objective', 's / iteration', ratio, 'peak MiB', ratio]
    return Table(header, [*zip(*columns, strict=True)], CAPTIONS['cost'])


def metric_table(results: Results, figure: str) -> Table:
    """A figure of every objective, over all comparisons and in each."""
    columns = {'objective': results.names}
    if figure == 'mIoU':
        ranks = results.ranks()
        columns['average rank'] = numbers.embolden_best(
            numbers.number_cells(ranks), -ranks
        )
    differences = results.differences(figure)
    differences[[name == BASELINE for name in results.names]] = nan
    found = {(f'difference to {BASELINE}', 'worst difference'): differences}
    if figure.startswith(FITTED):
        found['gain by fitting', 'smallest gain'] = results.values('gain')
    for (mean, worst), values in found.items():
        rows = mean_over_seeds(values)
        columns[mean] = difference_cells(rows)
        lowest = [min(row[np.isfinite(row)], default=None) for row in rows]
        columns[worst] = [
            ABSENT if v is None else numbers.signed(v) for v in lowest
        ]
    values = results.values(figure)
    for schedule, places in results.schedules.items():
        # NaN if one is missing: other means could not be compared.
        means = mean_over_seeds(values[:, places]).mean(axis=1, keepdims=True)
        columns[f'mean {schedule}'.strip()] = mean_cells(means)
    for place, label in enumerate(results.compared):
        columns[label] = mean_cells(values[:, place])
    return Table.of_columns(columns, CAPTIONS[figure])


def time_table(results: Results) -> Table:
    """Time of an iteration as a multiple of the baseline's."""
    ratios = results.costs('seconds')[1]
    mean = gmean(ratios, axis=1, nan_policy='omit')
    columns = {'objective': results.names, 'mean': numbers.number_cells(mean)}
    columns |= zip(
        results.compared, map(numbers.number_cells, ratios.T), strict=True
    )
    return Table.of_columns(columns, CAPTIONS['time'])


def as_dict(results: Results) -> dict[str, Any]:
    """The figures of a summary's tables, by objective."""
    arrays = {key: results.values(key) for key in ('mIoU', 'mIoU_tail')}
    if results.is_fitted:
        arrays['gain_by_fitting'] = results.values('gain')
    arrays['cost'] = results.costs('seconds')[1][..., None]
    figures: dict[str, Any] = {}
    for i, name in enumerate(results.names):
        figures[name] = own = {'rank': results.ranks()[i].item()}
        for key, values in arrays.items():
            means = mean_over_seeds(values[i]).tolist()
            found = zip(results.compared, means, strict=True)
            own[key] = {k: mean for k, mean in found if np.isfinite(mean)}
        for key in ('mIoU', 'mIoU_tail'):
            means = mean_over_seeds(results.differences(key)[i])
            difference = numbers.mean_difference(means)
            own[f'{key}_difference'] = difference and difference._asdict()
    return figures


def as_csv(results: Results) -> str:
    """A line for every finished run."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator='\n')
    keys = [*metrics_of(results), 'seconds']
    writer.writerow(['comparison', 'objective', 'seed', *keys])
    for label, runs in results.compared.items():
        for run in filter(Run.is_done, runs):
            # No spreadsheet may take a name for a formula.
            names = [
                f"'{name}" if name.startswith(tuple('=+-@\t\r')) else name
                for name in (label, run.name)
            ]
            values = [round(run.figures.get(key, nan), 4) for key in keys]
            writer.writerow([*names, run.seed, *values])
    return file.getvalue()
