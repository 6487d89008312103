"""The result of a fit, for tables, plots, JSON files and checkpoints."""

import math
from dataclasses import dataclass
from typing import Any

from prettytable import PrettyTable

from mmseg_margin.terminal import printable

from .measure import Figures


@dataclass(frozen=True)
class FittedOffsets:
    """The offsets of the classes, and their effect.

    Args:
        classes: The names of the K classes.
        offsets: One for each class, to be added to its score.
        absent: Names of classes without a pixel to fit on; their offset is 0.
        metric: ``'mIoU'`` or ``'mDice'``.
        split: The split that the offsets were fitted on.
        num_images: How many of its images.
        before: The figures of the validation split without offsets.
        after: The same with them; with ``split='val'``, each image with
            offsets fitted on others.
        gain_error: Standard error of the gain, over images.
    """

    classes: list[str]
    offsets: list[float]
    absent: list[str]
    metric: str
    split: str
    num_images: int
    before: Figures
    after: Figures
    gain_error: float

    @property
    def gain(self) -> float:
        """The gain of the mean, in percentage points."""
        return self.after.mean - self.before.mean

    @property
    def is_better(self) -> bool:
        """Whether there is a gain beyond its standard error."""
        return self.gain > self.gain_error

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without NaN, for JSON and a checkpoint's meta."""
        return vars(self) | {
            'before': _plain(self.before),
            'after': _plain(self.after),
            'gain_error': _none_for_nan(self.gain_error),
        }

    def summary(self) -> str:
        """The gain in a sentence or two, with its limitations."""
        before, after = self.before, self.after
        text = (
            f'{self.metric} {before.mean:.2f} -> {after.mean:.2f} '
            f'({self.gain:+.2f}, standard error {self.gain_error:.2f}), pixel '
            f'accuracy {before.accuracy:.2f} -> {after.accuracy:.2f} on the '
            f'validation split; fitted on {self.num_images} images of the '
            f'{self.split} split.'
        )
        if self.split == 'val':
            text += (
                ' The gain is cross-validated over images of this split; it '
                'says nothing about images of other scenes.'
            )
        if self.absent:
            names = ', '.join(map(printable, self.absent))
            text += f' Without a pixel to fit on, so with offset 0: {names}.'
        return text

    def table(self) -> str:
        """Class, offset, and the metric before and after."""
        name = self.metric.removeprefix('m')
        table = PrettyTable(
            ['class', 'offset', f'{name} before', 'after', 'change']
        )
        table.align = 'r'
        table.align['class'] = 'l'
        for row in zip(
            self.classes,
            self.offsets,
            self.before.classes,
            self.after.classes,
            strict=True,
        ):
            table.add_row(_cells(*row))
        means = self.before.mean, self.after.mean
        table.add_row(['mean', '', *_cells('', 0, *means)[2:]])
        return table.get_string()


def _cells(name: str, offset: float, before: float, after: float) -> list[str]:
    figures = (f'{before:.2f}', f'{after:.2f}', f'{after - before:+.2f}')
    known = ['-' if 'nan' in figure else figure for figure in figures]
    return [printable(name), f'{offset:+.2f}', *known]


def _plain(figures: Figures) -> dict[str, Any]:
    classes = [_none_for_nan(value) for value in figures.classes]
    return figures._asdict() | {'classes': classes}


def _none_for_nan(value: float) -> float | None:
    return None if math.isnan(value) else value
