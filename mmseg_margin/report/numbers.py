"""Means, paired differences, and how a reader sees them."""

import math
import statistics
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from scipy.stats import t as student_t

from .pages import Bold

ABSENT = '\u2013'  # en dash
MINUS = '\u2212'
CONFIDENCE = 0.95
Key = TypeVar('Key', bound=Hashable)


class PairedDifference(NamedTuple):
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


def paired_difference(
    values: Mapping[Key, float], baseline: Mapping[Key, float]
) -> PairedDifference | None:
    """Compare what both have, by its key; None if they share none."""
    differences = [
        values[key] - baseline[key] for key in values if key in baseline
    ]
    return mean_difference(differences)


def mean_difference(differences: Sequence[float]) -> PairedDifference | None:
    """The mean and Student's interval of it; None for nothing."""
    n = len(differences)
    if not n:
        return None
    mean = statistics.fmean(differences)
    if n == 1:
        return PairedDifference(mean, None, None, n)
    error = statistics.stdev(differences) / math.sqrt(n)
    half = float(student_t.ppf((1 + CONFIDENCE) / 2, n - 1)) * error
    return PairedDifference(mean, mean - half, mean + half, n)


def signed(value: float) -> str:
    return f'{value:+.2f}'.replace('-', MINUS)


def mean_text(values: Collection[float]) -> str:
    """``mean ± deviation``; a dash for nothing."""
    if not values:
        return ABSENT
    mean = f'{statistics.fmean(values):.2f}'
    if len(values) == 1:
        return mean
    return f'{mean} ± {statistics.stdev(values):.2f}'


def interval_text(difference: PairedDifference) -> str:
    """``[low, high]``, or a dash for a single difference."""
    if difference.low is None or difference.high is None:
        return ABSENT
    return f'[{signed(difference.low)}, {signed(difference.high)}]'


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
