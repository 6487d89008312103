"""The paper's Tables 1 and 2, paired differences, margins and cost."""

from dataclasses import fields
from pathlib import Path

import numpy as np

from mmseg_margin.functional import OffsetSettings
from mmseg_margin.report.numbers import (
    ABSENT,
    difference_cells,
    mean_cells,
    number_cells,
)
from mmseg_margin.report.pages import Block, Picture, Table
from mmseg_margin.stats import ClassStats, plot_stats
from mmseg_margin.stats.display import offset_columns

from .records import FITTED, Run
from .results import BASELINE, MARGIN_LOSS, Results

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
}


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
    columns = {'objective': [results.names[i] for i in others]}
    for metric, title in metrics_of(results).items():
        cells = difference_cells(results.differences(metric)[0])
        columns[title] = [cells[i] for i in others]
    has_baseline = any(
        run.name == BASELINE and run.is_done() for run in results.runs
    )
    table = Table.of_columns(columns, CAPTIONS['differences'])
    return table if has_baseline and others else None


def class_table(results: Results) -> Table:
    """Table 2: IoU of every class, most frequent class first."""
    first, names = results.runs[0], results.names
    fitted = [f'{name}, fitted' for name in names] * results.is_fitted
    total = max(sum(first.class_counts), 1)
    rows = []
    for k in class_order(first):
        values = [*results.values(f'IoU/{k}')[0]]
        if results.is_fitted:
            values += [*results.values(f'{FITTED}IoU/{k}')[0]]
        fraction = f'{100 * first.class_counts[k] / total:.3f}'
        rows.append([first.classes[k], fraction, *mean_cells(values)])
    header = ['class', 'share %', *names, *fitted]
    return Table(header, rows, CAPTIONS['classes'])


def class_order(run: Run) -> list[int]:
    """Class indices, most frequent first."""
    return np.argsort(-np.array(run.class_counts), kind='stable').tolist()


def margin_blocks(results: Results, folder: Path) -> list[Block]:
    """Pixels and margin-offsets of the classes, and a picture of both."""
    first = results.runs[0]
    classes, counts = first.classes, first.class_counts
    stats = ClassStats(classes, counts, [0] * len(counts), counts)
    losses = results.terms(MARGIN_LOSS) or {'the default parameters': {}}
    name, loss = next(iter(losses.items()))
    known = [field.name for field in fields(OffsetSettings)]
    given = {key: loss[key] for key in known if key in loss}
    settings = OffsetSettings(**given)
    tau, upsilon = settings.tau_for(counts), settings.upsilon
    texts = [
        [ABSENT if text == '-' else text for text in pair]
        for pair in offset_columns(stats, settings)
    ]
    file = None
    if any(rho_0k != ABSENT for rho_0k, _ in texts):
        file = folder / 'classes.png'
        plot_stats(stats, file, settings)
    table = Table(
        ['class', 'pixels', 'share %', 'rho_0k', 'rho_k0'],
        [
            [classes[k], f'{counts[k]:,}', f'{100 * p:.4f}', *texts[k]]
            for k in class_order(first)
            for p in [counts[k] / max(stats.total, 1)]
        ],
        'Labelled pixels of the training set, and the margin-offsets '
        f'{"of" if loss else "for"} {name} (tau = {tau:g}, upsilon = '
        f'{upsilon:g}). A class that is absent has none.',
    )
    caption = 'Shares and margin-offsets, most frequent class on top.'
    return [table, Picture(file, caption, wide=True) if file else None]


def cost_table(results: Results) -> Table:
    """Time and memory, and their ratio to the baseline."""
    seconds, slower = results.costs('seconds', np.ma.median)
    memory, larger = results.costs('memory', np.ma.max)
    columns = (
        results.names,
        number_cells(seconds[0], '.4g'),
        number_cells(slower[0]),
        number_cells(memory[0], ',.0f'),
        number_cells(larger[0]),
    )
    ratio = f'ratio to {BASELINE}'
    return Table(
        ['objective', 's / iteration', ratio, 'peak MiB', ratio],
        [*zip(*columns, strict=True)],
        'Median over the seeds of the seconds of an iteration, and the '
        'largest peak memory of the process.',
    )
