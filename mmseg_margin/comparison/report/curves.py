"""The paper's Figure 3: how the trainings went."""

from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import NDArray

from mmseg_margin.terminal import drawable

from .colours import colours_of
from .comparison import Comparison
from .document import Block, Gallery, Picture, Section
from .text import title_lines

DPI = 140
# Train and validation share a colour, so their lines differ.
LINES = {'train': '--', 'val': '-'}
NAMES = {'train': 'training', 'val': 'validation'}
QUANTITIES = {'mIoU': 'mIoU in %', 'loss': 'loss'}


class Curve(NamedTuple):
    """Mean and standard deviation over the runs at each iteration."""

    iterations: NDArray
    mean: NDArray
    deviation: NDArray


def average_curve(runs: list[list[tuple[int, float]]]) -> Curve:
    """Average what the runs have at the same iteration."""
    values: dict[int, list[float]] = defaultdict(list)
    for points in runs:
        for iteration, value in points:
            values[iteration].append(value)
    iterations = sorted(values)
    return Curve(
        np.array(iterations),
        np.array([np.mean(values[i]) for i in iterations]),
        np.array(
            [
                np.std(values[i], ddof=1) if len(values[i]) > 1 else 0.0
                for i in iterations
            ]
        ),
    )


def curves_section(comparison: Comparison, folder: Path) -> Section:
    """All objectives in one picture, and each in one of its own."""
    curves = {
        (objective, name): average_curve(
            [run.curves[name] for run in runs if run.curves.get(name)]
        )
        for objective in comparison.objectives
        if (runs := comparison.runs(objective))
        for name in ('train_mIoU', 'val_mIoU', 'train_loss', 'val_loss')
    }
    drawn = {
        objective: colour
        for objective, colour in colours_of(comparison.objectives).items()
        if any(any(run.curves.values()) for run in comparison.runs(objective))
    }
    if not drawn:
        return Section('Curves', ['No run has recorded any curves.'])
    blocks: list[Block] = [
        'Means over the seeds; the bands are one standard deviation wide on '
        'either side. The losses of different objectives have different '
        'units and cannot be compared with each other.',
        _draw_together(curves, drawn, folder / 'curves.png'),
        Gallery(
            [
                _draw_one(
                    curves, objective, colour, folder / f'curves-{i}.png'
                )
                for i, (objective, colour) in enumerate(drawn.items(), 1)
            ]
        ),
    ]
    return Section('Curves', blocks)


def _draw_together(
    curves: dict[tuple[str, str], Curve], drawn: dict[str, str], path: Path
) -> Picture:
    figure = _figure(6.4, 4.6)
    axes = figure.subplots()
    for objective, colour in drawn.items():
        _draw(axes, curves[objective, 'val_mIoU'], colour, '-', objective)
    axes.set_xlabel('iteration')
    axes.set_ylabel('validation mIoU in %')
    _finish(axes)
    columns = 4 if max(map(len, drawn)) < 16 else 1
    figure.legend(loc='outside lower center', ncols=columns, frameon=False)
    figure.savefig(path, dpi=DPI)
    return Picture('Validation mIoU of all objectives.', path)


def _draw_one(
    curves: dict[tuple[str, str], Curve],
    objective: str,
    colour: str,
    path: Path,
) -> Picture:
    figure = _figure(4.4, 4.6)
    panels = figure.subplots(2, 1, sharex=True)
    for axes, (quantity, label) in zip(
        panels, QUANTITIES.items(), strict=True
    ):
        for split, line in LINES.items():
            curve = curves[objective, f'{split}_{quantity}']
            _draw(axes, curve, colour, line, NAMES[split])
        axes.set_ylabel(label)
        _finish(axes)
    panels[0].set_ylim(0, 100)
    panels[0].set_title(title_lines(objective), fontsize=11)
    panels[0].legend(frameon=False)
    panels[1].set_xlabel('iteration')
    figure.savefig(path, dpi=DPI)
    return Picture(f'{objective}: mIoU and loss.', path)


def _figure(width: float, height: float) -> Figure:
    # Padded, or the last tick's label would touch the edge.
    padded = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.06)
    return Figure(figsize=(width, height), layout=padded)


def _draw(axes: Any, curve: Curve, colour: str, line: str, label: str) -> None:
    axes.plot(
        curve.iterations,
        curve.mean,
        line,
        marker='.',
        color=colour,
        label=drawable(label),
    )
    axes.fill_between(
        curve.iterations,
        curve.mean - curve.deviation,
        curve.mean + curve.deviation,
        color=colour,
        alpha=0.15,
        linewidth=0,
    )


def _finish(axes: Any) -> None:
    axes.grid(color='#dddddd', linewidth=0.6)
    axes.spines[['top', 'right']].set_visible(False)
