"""The numbers of a report: tables of text cells, and a verdict."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student_t

from .records import Comparison

BASELINE = 'ce'
ABSENT = '\u2013'  # en dash
MINUS = '\u2212'
CONFIDENCE = 0.95
ENOUGH = 3  # values, for an interval that means something
METRICS = {
    'aAcc': 'pixel accuracy',
    'mIoU': 'mIoU',
    'mIoU_tail': 'tail mIoU',
    'fitted mIoU': 'mIoU with fitted offsets',
}


class MeanDifference(NamedTuple):
    """Mean of n differences and its interval, NaN for a single one."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def sign(self) -> int:
        """1 or -1 where the interval of enough values excludes 0, else 0."""
        if self.n < ENOUGH:
            return 0
        return (self.low > 0) - (self.high < 0)

    def __str__(self) -> str:
        """The mean, and the interval if there is one."""
        interval = f' [{signed(self.low)}, {signed(self.high)}]'
        return signed(self.mean) + interval * (self.n > 1)


def mean_difference(differences: ArrayLike) -> MeanDifference | None:
    """Mean and Student's t interval of all that is finite, if anything is."""
    found = _finite(differences)
    if not found.size:
        return None
    mean, half = float(found.mean()), math.nan
    if found.size > 1:
        error = found.std(ddof=1) / math.sqrt(found.size)
        t = student_t.ppf((1 + CONFIDENCE) / 2, found.size - 1)
        half = float(t * error)
    return MeanDifference(mean, mean - half, mean + half, found.size)


def signed(value: float) -> str:
    return f'{value:+.2f}'.replace('-', MINUS)


def difference_cell(values: ArrayLike) -> str:
    """Mean with its interval, and a star where that excludes 0."""
    found = mean_difference(values)
    if found is None:
        return ABSENT
    return f'{found} *' if found.sign else str(found)


def mean_cell(values: ArrayLike) -> str:
    """``mean ± deviation``."""
    found = _finite(values)
    if found.size < 2:
        return f'{found[0]:.2f}' if found.size else ABSENT
    return f'{found.mean():.2f} ± {found.std(ddof=1):.2f}'


def _finite(values: ArrayLike) -> NDArray:
    array = np.asarray(values, dtype=np.float64)
    return array[np.isfinite(array)]


def overall_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Table 1 of the paper: every metric of every objective."""
    table = _metrics_table(frame, mean_cell)
    groups = frame.groupby('objective', sort=False)
    if 'gain' in frame:
        table['gain by fitting'] = groups['gain'].agg(difference_cell)
    seconds = groups['seconds'].median().map('{:.3g}'.format)
    table['s / iteration'] = seconds.replace('nan', ABSENT)
    table['seeds'] = groups['mIoU'].count()
    return table


def _metrics_table(
    frame: pd.DataFrame, cell: Callable[[ArrayLike], str]
) -> pd.DataFrame:
    columns = [metric for metric in METRICS if metric in frame]
    groups = frame[columns].groupby('objective', sort=False)
    return groups.agg(cell).rename(columns=METRICS)


def differences(frame: pd.DataFrame) -> pd.DataFrame:
    """Each run minus the baseline's with the same seed, where both exist."""
    objectives = frame.index.get_level_values('objective')
    seeds = frame.index.get_level_values('seed')
    is_baseline = objectives == BASELINE
    baseline = frame[is_baseline].droplevel('objective').reindex(seeds)
    pairs = frame - baseline.to_numpy()
    return pairs[~is_baseline].dropna(subset='mIoU')


def difference_table(frame: pd.DataFrame) -> pd.DataFrame | None:
    """Every objective against the baseline, seed by seed."""
    pairs = differences(frame)
    return None if pairs.empty else _metrics_table(pairs, difference_cell)


def class_table(comparison: Comparison) -> pd.DataFrame | None:
    """Table 2 of the paper: IoU of each class, most frequent class first."""
    if not comparison.done:
        return None
    counts = np.array(comparison.common['class_counts'])
    order = np.argsort(-counts, kind='stable')
    shares = 100 * counts[order] / counts.sum()
    columns = {'share %': [f'{share:.3f}' for share in shares]}
    iou = comparison.frame()[[f'IoU/{k}' for k in order]]
    for name, values in iou.groupby('objective', sort=False):
        columns[name] = [mean_cell(values[column]) for column in values]
    classes = [comparison.common['classes'][k] for k in order]
    return pd.DataFrame(columns, index=classes)


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
        return f'Only {names[0]} has a result, a mean mIoU of {best:.2f}.'
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
    pairs = differences(frame)['mIoU']
    own = pairs[pairs.index.get_level_values('objective') == subject]
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
