"""The tables of a report: the paper's Tables 1 and 2, and differences."""

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
CAPTIONS = {
    'overall': 'Mean and standard deviation over the seeds, in percent. Head, '
    'middle and tail are thirds of the classes by their pixels in the '
    'training set. Offsets are fitted to each trained network on training '
    'images; their gain has its 95 % interval over the seeds. The seconds are '
    'the median over iterations and seeds.',
    'differences': f'Mean difference to {BASELINE} in points, each run '
    f'against the run of {BASELINE} with the same seed, and its 95 % interval '
    "(Student's t); with three seeds or more it is bold where it excludes 0. "
    'The intervals are not corrected for being many.',
    'classes': 'IoU in percent, mean and standard deviation over the seeds. '
    'The share is that of the training pixels.',
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
    seconds = [values.median() for values in values_of(frame, 'seconds')]
    columns['s / iteration'] = number_cells(seconds, '.3g')
    finished = [values.count() for values in values_of(frame, 'seconds')]
    columns['seeds'] = [str(number) for number in finished]
    return Table(columns, CAPTIONS['overall'])


def differences(frame: pd.DataFrame) -> pd.DataFrame:
    """Each run minus the baseline's with the same seed; empty without one."""
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
    return Table(columns, CAPTIONS['differences'])


def class_table(comparison: Comparison, frame: pd.DataFrame) -> Table | None:
    """Table 2: IoU of every class, most frequent class first."""
    if 'mIoU' not in frame:
        return None
    counts = np.array(comparison.common['class_counts'])
    order = np.argsort(-counts, kind='stable')
    columns = {
        'class': [comparison.common['classes'][k] for k in order],
        'share %': number_cells(100 * counts[order] / counts.sum(), '.3f'),
    }
    for prefix in ('', FITTED) if 'gain' in frame else ('',):
        iou = frame[[f'{prefix}IoU/{k}' for k in order]]
        for name, values in iou.groupby('objective', sort=False):
            columns[f'{prefix}{name}'] = mean_cells(values.to_numpy().T)
    return Table(columns, CAPTIONS['classes'])
