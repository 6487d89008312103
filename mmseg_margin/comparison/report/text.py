"""Numbers and names as a reader sees them."""

import statistics
from collections.abc import Collection

from mmseg_margin.terminal import drawable

from .statistics import PairedDifference, deviation

ABSENT = '\u2013'  # en dash
MINUS = '\u2212'


class Bold(str):
    """A table cell that stands out."""

    __slots__ = ()


def title_lines(objective: str) -> str:
    """The title of a picture, its settings on lines of their own."""
    return drawable(objective).replace(':', '\n').replace(',', '\n')


def signed(value: float) -> str:
    return f'{value:+.2f}'.replace('-', MINUS)


def mean_text(values: Collection[float]) -> str:
    """``mean ± deviation``; a dash for nothing."""
    if not values:
        return ABSENT
    mean = f'{statistics.fmean(values):.2f}'
    spread = deviation(list(values))
    return mean if spread is None else f'{mean} ± {spread:.2f}'


def interval_text(difference: PairedDifference) -> str:
    """``[low, high]``, or a dash for a single difference."""
    if difference.low is None or difference.high is None:
        return ABSENT
    return f'[{signed(difference.low)}, {signed(difference.high)}]'


def embolden_best(cells: list[str], values: list[float | None]) -> list[str]:
    """The largest stands out, and what looks equal to it with two digits."""
    shown = [None if value is None else round(value, 2) for value in values]
    present = [value for value in shown if value is not None]
    if len(present) < 2:
        return cells
    return [
        Bold(cell) if value == max(present) else cell
        for cell, value in zip(cells, shown, strict=True)
    ]
