"""The result of a fit, for tables, plots, JSON files and checkpoints."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prettytable import PrettyTable
from torch import Tensor

from mmseg_margin.errors import DataSetError
from mmseg_margin.terminal import drawable, printable

from .ascent import class_metrics

PERCENT = 100
INCHES_PER_CLASS = 0.26


@dataclass(frozen=True)
class Scores:
    """In percent, as mmseg's IoUMetric prints them."""

    mean: float  # mIoU, or mean Dice
    accuracy: float  # of all labelled pixels
    classes: list[float]  # NaN where a class does not occur


def measure_gain(areas: Tensor, metric: str) -> tuple[Scores, Scores, float]:
    """Scores before and after, and the standard error of the gain.

    Args:
        areas: Of N images, (N, 2, 3, K).
        metric: ``'mIoU'`` or ``'mDice'``.
    """
    total = areas.sum(0)
    if not total.any():
        raise DataSetError(
            'No pixel of the validation split is labelled, so the gain cannot '
            'be measured: choose images with labels.'
        )
    classes = PERCENT * class_metrics(total, metric)
    hit, _, labelled = total.sum(-1).T
    accuracy = PERCENT * hit / labelled
    values = classes.nanmean(-1).tolist(), accuracy.tolist(), classes.tolist()
    before, after = map(Scores, *values)
    # The jackknife: each image left out once.
    means = PERCENT * class_metrics(total - areas, metric).nanmean(-1)
    gains = means[:, 1] - means[:, 0]
    spread = (gains - gains.mean()).square().mean() * (len(areas) - 1)
    return before, after, float(spread.sqrt())


@dataclass(frozen=True)
class FittedOffsets:
    """The fitted offsets of the classes, and their effect.

    Args:
        offsets: One for each class, to be added to its score.
        absent: Names of classes without a pixel to fit on; their offset is 0.
        split: The split that the offsets were fitted on.
        before: The scores of the validation split without offsets.
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
    before: Scores
    after: Scores
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
        text = json.dumps(asdict(self))
        return json.loads(text, parse_constant=lambda _: None)

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
        before = f'{self.metric.removeprefix("m")} before'
        table = PrettyTable(['class', 'offset', before, 'after', 'change'])
        table.align = 'r'
        table.align['class'] = 'l'
        for k, offset in enumerate(self.offsets):
            cells = _cells(self.before.classes[k], self.after.classes[k])
            name = printable(self.classes[k])
            table.add_row([name, f'{offset:+.2f}', *cells])
        means = _cells(self.before.mean, self.after.mean)
        table.add_row(['mean', '', *means])
        return table.get_string()

    def draw(self, path: Path) -> None:
        """Offsets, and each class before and after, as a PNG file."""
        # Matplotlib is not imported before a picture is drawn.
        from mmseg_margin.pictures import BLUE, GREY, RED, picture

        K = len(self.classes)
        rows = range(K)
        before, after = self.before.classes, self.after.classes
        pairs = zip(before, after, strict=True)
        colours = [RED if new < old else BLUE for old, new in pairs]
        with picture(path, 9, 1.6 + INCHES_PER_CLASS * K) as figure:
            left, right = figure.subplots(
                1, 2, sharey=True, width_ratios=(2, 3)
            )
            left.barh(rows, self.offsets, height=0.6, color=GREY)
            left.axvline(0, color='black', linewidth=0.8)
            left.set_xlabel('fitted offset')
            left.set_yticks(rows, [drawable(name) for name in self.classes])
            left.set_ylim(K - 0.4, -0.6)
            right.hlines(rows, before, after, color=colours, linewidth=2)
            right.scatter(before, rows, color=GREY, s=22, zorder=3)
            right.scatter(after, rows, color=colours, s=22, zorder=3)
            right.set_xlim(-2, 102)
            right.set_xlabel(
                f'{self.metric.removeprefix("m")} in percent: before (grey), '
                'after (blue if not lower, else red)'
            )
            figure.suptitle(
                f'{self.metric} {self.before.mean:.2f} to '
                f'{self.after.mean:.2f} on the validation split; fitted on '
                f'{self.num_images} images of the {self.split} split',
                fontsize='medium',
            )


def _cells(before: float, after: float) -> list[str]:
    cells = f'{before:.2f}', f'{after:.2f}', f'{after - before:+.2f}'
    return ['-' if 'nan' in cell else cell for cell in cells]
