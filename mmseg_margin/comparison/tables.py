"""The tables of a report: the paper's Tables 1 and 2, and the cost."""

import numpy as np
import pandas as pd

from mmseg_margin.report.numbers import (
    difference_cells,
    mean_cells,
    number_cells,
)
from mmseg_margin.report.pages import Table

from .records import BASELINE, FITTED, Comparison, values_of

METRICS = {
    'aAcc': 'pixel accuracy',
    'mIoU': 'mIoU',
    'mIoU_head': 'head mIoU',
    'mIoU_middle': 'middle mIoU',
    'mIoU_tail': 'tail mIoU',
    f'{FITTED}mIoU': 'mIoU with fitted offsets',
}
BOLD = 'with three seeds or more the best mean is bold.'
CAPTIONS = {
    'overall': f'Mean and standard deviation over the seeds, in percent; {BOLD}'
    ' Head, middle and tail are thirds of the classes by their pixels in the '
    'training set. Offsets are fitted to each trained network on training '
    'images; their gain has its 95 % interval over the seeds.',
    'differences': f'Mean difference to {BASELINE} in points, each run '
    f'against the run of {BASELINE} with the same seed, and its 95 % interval '
    "(Student's t); with three seeds or more it is bold where it excludes 0. "
    'The intervals are not corrected for being many.',
    'classes': 'IoU in percent, mean and standard deviation over the seeds; '
    f'{BOLD} The share is that of the training pixels.',
    'cost': 'Median over the seeds of the seconds of an iteration.',
}


def overall_table(frame: pd.DataFrame) -> Table:
    """Table 1: every metric of every objective."""
    columns = {'objective': frame.index.unique('objective')}
    for metric, title in METRICS.items():
        if metric in frame:
            columns[title] = mean_cells(values_of(frame, metric))
    if 'gain' in frame:
        gains = values_of(frame, 'gain')
        columns['gain by fitting'] = difference_cells(gains)
    if 'mIoU' in frame:
        finished = values_of(frame, 'mIoU')
        columns['seeds'] = [str(values.count()) for values in finished]
    return Table.of_columns(columns, CAPTIONS['overall'])


def differences(frame: pd.DataFrame) -> pd.DataFrame:
    """Each run minus the baseline's run with the same seed; empty without."""
    if 'mIoU' not in frame or BASELINE not in frame.index:
        return frame.iloc[:0]
    baseline = frame.loc[BASELINE].dropna(subset='mIoU')
    others = frame.drop(index=BASELINE, level='objective')
    seeds = others.index.get_level_values('seed')
    return others[seeds.isin(baseline.index)].sub(baseline, level='seed')


def difference_table(frame: pd.DataFrame) -> Table | None:
    """Every objective against the baseline, seed by seed."""
    found = differences(frame)
    if found.empty:
        return None
    columns = {'objective': found.index.unique('objective')}
    for metric, title in METRICS.items():
        if metric in found:
            columns[title] = difference_cells(values_of(found, metric))
    return Table.of_columns(columns, CAPTIONS['differences'])


def class_table(comparison: Comparison, frame: pd.DataFrame) -> Table | None:
    """Table 2: IoU of every class, most frequent class first."""
    if 'mIoU' not in frame:
        return None
    classes, counts = (
        comparison.common[key] for key in ('classes', 'class_counts')
    )
    kinds = {'': ''} | ({FITTED: ', fitted'} if 'gain' in frame else {})
    titles = [n + kind for kind in kinds.values() for n in comparison.names]
    rows = []
    for k in np.argsort(-np.array(counts), kind='stable'):
        values = []
        for kind in kinds:
            values += values_of(frame, f'{kind}IoU/{k}')
        fraction = f'{100 * counts[k] / max(sum(counts), 1):.3f}'
        rows.append([classes[k], fraction, *mean_cells(values)])
    return Table(['class', 'share %', *titles], rows, CAPTIONS['classes'])


def cost_table(frame: pd.DataFrame) -> Table:
    """Time of an iteration, and its ratio to the baseline's."""
    seconds = frame['seconds'].groupby('objective', sort=False).median()
    columns = {
        'objective': seconds.index,
        's / iteration': number_cells(seconds, '.4g'),
    }
    if BASELINE in seconds:
        ratios = number_cells(seconds / seconds[BASELINE])
        columns[f'ratio to {BASELINE}'] = ratios
    return Table.of_columns(columns, CAPTIONS['cost'])
