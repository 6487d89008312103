"""Means, differences with their intervals, and both as text."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student_t

from .pages import Bold

ABSENT = '\u2013'  # en dash
MINUS = '\u2212'
CONFIDENCE = 0.95
# With fewer values an interval says nothing, and nothing is set in bold.
ENOUGH = 3


class MeanDifference(NamedTuple):
    """Mean of n differences and its interval, None for a single one."""

    mean: float
    low: float | None
    high: float | None
    n: int

    @property
    def sign(self) -> int:
        """1 or -1 where the interval lies on one side of 0, otherwise 0.

        With fewer than :data:`ENOUGH` values it is 0.
        """
        if self.low is None or self.high is None or self.n < ENOUGH:
            return 0
        return (self.low > 0) - (self.high < 0)

    @property
    def interval_text(self) -> str:
        """``[low, high]``, or nothing for a single difference."""
        if self.low is None or self.high is None:
            return ''
        return f'[{signed(self.low)}, {signed(self.high)}]'


def mean_difference(differences: ArrayLike) -> MeanDifference | None:
    """Mean and Student's t interval of all that is finite, if anything is."""
    found = _finite(differences)
    if not found.size:
        return None
    mean = float(found.mean())
    if found.size == 1:
        return MeanDifference(mean, None, None, 1)
    error = found.std(ddof=1) / math.sqrt(found.size)
    half = float(student_t.ppf((1 + CONFIDENCE) / 2, found.size - 1) * error)
    return MeanDifference(mean, mean - half, mean + half, found.size)


def signed(value: float) -> str:
    return f'{value:+.2f}'.replace('-', MINUS)


def difference_cells(rows: Iterable[ArrayLike]) -> list[str]:
    """Each mean above its interval, bold where that excludes 0."""
    cells = []
    for difference in map(mean_difference, rows):
        text = ABSENT
        if difference:
            interval = difference.interval_text
            text = f'{signed(difference.mean)}\n{interval}'.strip()
        cells.append(Bold(text) if difference and difference.sign else text)
    return cells


def mean_cells(rows: Iterable[ArrayLike]) -> list[str]:
    """``mean ± deviation`` of each row, the largest mean in bold.

    Nothing is bold if a row has fewer than :data:`ENOUGH` values, or if all
    means are the same after rounding.
    """
    found = [_finite(row) for row in rows]
    cells = number_cells(v.mean() if v.size else math.nan for v in found)
    sizes = [v.size for v in found if v.size]
    best = max((v.mean() for v in found if v.size), default=math.nan)
    is_clear = min(sizes, default=0) >= ENOUGH and len({*cells} - {ABSENT}) > 1
    for i, values in enumerate(found):
        is_best = is_clear and cells[i] == f'{best:.2f}'
        if values.size > 1:
            cells[i] += f' ± {values.std(ddof=1):.2f}'
        if is_best:
            cells[i] = Bold(cells[i])
    return cells


def number_cells(values: Iterable[float], digits: str = '.2f') -> list[str]:
    return [f'{v:{digits}}' if math.isfinite(v) else ABSENT for v in values]


def list_names(names: Sequence[str]) -> str:
    """``a``, ``a and b``, or ``a, b and c``."""
    *others, last = names
    return f'{", ".join(others)} and {last}' if others else last


def _finite(values: ArrayLike) -> NDArray:
    array = np.asarray(values, dtype=np.float64)
    return array[np.isfinite(array)]
