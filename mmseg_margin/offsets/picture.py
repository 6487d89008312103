"""A picture of the offsets, and of each class before and after."""

from pathlib import Path

from matplotlib.lines import Line2D

from mmseg_margin.report.pictures import picture
from mmseg_margin.terminal import drawable

from .result import FittedOffsets

BEFORE, BETTER, WORSE = '#777777', '#0072B2', '#D55E00'
INCHES_PER_CLASS = 0.26


def draw(result: FittedOffsets, path: Path) -> None:
    """Two panels with a line for each class, as a PNG file."""
    K = len(result.classes)
    lines = range(K)
    before, after = result.before.classes, result.after.classes
    colours = [
        BETTER if new > old else WORSE if new < old else BEFORE
        for old, new in zip(before, after, strict=True)
    ]
    with picture(path, 9, 1.6 + INCHES_PER_CLASS * K) as figure:
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(2, 3))
        left.barh(lines, result.offsets, height=0.6, color=BEFORE)
        left.axvline(0, color='black', linewidth=0.8)
        left.set_xlabel('offset added to the score')
        right.hlines(lines, before, after, color=colours, linewidth=2)
        right.scatter(before, lines, color=BEFORE, s=22, zorder=3)
        right.scatter(after, lines, color=colours, s=22, zorder=3)
        right.set_xlim(-2, 102)
        right.set_xlabel(f'{result.metric.removeprefix("m")} in percent')
        right.legend(
            handles=[
                _dot(BEFORE, 'before'),
                _dot(BETTER, 'after, better'),
                _dot(WORSE, 'after, worse'),
            ],
            loc='lower center',
            bbox_to_anchor=(0.5, 1.0),
            ncols=3,
            frameon=False,
        )
        left.set_yticks(lines, [drawable(name) for name in result.classes])
        left.set_ylim(K - 0.4, -0.6)
        figure.suptitle(
            f'{result.metric} {result.before.mean:.2f} to '
            f'{result.after.mean:.2f} on the validation split; fitted on '
            f'{result.num_images} images of the {result.split} split',
            fontsize='medium',
        )


def _dot(colour: str, label: str) -> Line2D:
    return Line2D([], [], marker='o', linestyle='', color=colour, label=label)
