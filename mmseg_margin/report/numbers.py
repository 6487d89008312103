"""Means, differences with their intervals, and how a reader sees them."""

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from scipy.stats import t as student_t

from .pages import Bold

ABSENT = '\u2013'  # en dash
MINUS = '\u2212'
CONFIDENCE = 0.95


class MeanDifference(NamedTuple):
    """Mean of n differences and its interval, None for a single one."""

    mean: float
    low: float | None
    high: float | None
    n: int

    @property
    def sign(self) -> int:
        """1 or -1 where the interval lies on one side of 0, otherwise 0."""
        if self.low is None or self.high is None:
            return 0
        return (self.low > 0) - (self.high < 0)

    @property
    def interval_text(self) -> str:
        """``[low, high]``, or nothing for a single difference."""
        if self.low is None or self.high is None:
            return ''
        return f'[{signed(self.low)}, {signed(self.high)}]'


def paired_difference(
    values: Mapping[int, float], baseline: Mapping[int, float]
) -> MeanDifference | None:
    """Compare what both have, by its seed; None if they share none."""
    return mean_difference(
        [values[s] - baseline[s] for s in values if s in baseline]
    )


def mean_difference(differences: Sequence[float]) -> MeanDifference | None:
    """The mean and Student's interval of it; None for nothing."""
    n = len(differences)
    if not n:
        return None
    mean = statistics.fmean(differences)
    if n == 1:
        return MeanDifference(mean, None, None, n)
    error = statistics.stdev(differences) / math.sqrt(n)
    half = float(student_t.ppf((1 + CONFIDENCE) / 2, n - 1)) * error
    return MeanDifference(mean, mean - half, mean + half, n)


def signed(value: float) -> str:
    return f'{value:+.2f}'.replace('-', MINUS)


def difference_text(difference: MeanDifference | None) -> str:
    """The mean above its interval; a dash for nothing."""
    if difference is None:
        return ABSENT
    return f'{signed(difference.mean)}\n{difference.interval_text}'.strip()


def mean_text(values: Collection[float]) -> str:
    """``mean ± deviation``; a dash for nothing."""
    if not values:
        return ABSENT
    mean = f'{statistics.fmean(values):.2f}'
    if len(values) == 1:
        return mean
    return f'{mean} ± {statistics.stdev(values):.2f}'


def mean_cells(columns: Sequence[Collection[float]]) -> list[str]:
    """The means of several, of which the best stands out."""
    means = [statistics.fmean(each) if each else None for each in columns]
    return embolden_best([mean_text(each) for each in columns], means)


def embolden_best(
    cells: Sequence[str], values: Sequence[float | None]
) -> list[str]:
    """The largest stands out, and what looks equal to it with two digits."""
    shown = [None if value is None else round(value, 2) for value in values]
    present = [value for value in shown if value is not None]
    if len(present) < 2:
        return list(cells)
    return [
        Bold(cell) if value == max(present) else cell
        for cell, value in zip(cells, shown, strict=True)
    ]
