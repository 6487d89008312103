"""Means, differences with their intervals, and both as text."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student_t

from .pages import Bold

ABSENT = '\u2013'  # en dash
MINUS = '\u2212'
CONFIDENCE = 0.95
ENOUGH = 3  # values, for an interval that means something


class MeanDifference(NamedTuple):
    """Mean of n differences and its interval, NaN for a single one."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def sign(self) -> int:
        """1 or -1 where the interval lies on one side of 0, otherwise 0.

        It is 0 for fewer than :data:`ENOUGH` values as well.
        """
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


def difference_cells(rows: Iterable[ArrayLike]) -> list[str]:
    """Each mean with its interval, bold where that excludes 0."""
    found = [mean_difference(row) for row in rows]
    return [
        Bold(each) if each and each.sign else str(each or ABSENT)
        for each in found
    ]


def mean_cells(rows: Iterable[ArrayLike]) -> list[str]:
    """``mean ± deviation`` of each row."""
    cells = []
    for values in map(_finite, rows):
        cell = f'{values.mean():.2f}' if values.size else ABSENT
        if values.size > 1:
            cell += f' ± {values.std(ddof=1):.2f}'
        cells.append(cell)
    return cells


def number_cells(values: Iterable[float], digits: str = '.2f') -> list[str]:
    return [f'{v:{digits}}' if math.isfinite(v) else ABSENT for v in values]


def _finite(values: ArrayLike) -> NDArray:
    array = np.asarray(values, dtype=np.float64)
    return array[np.isfinite(array)]
