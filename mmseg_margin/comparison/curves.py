"""The paper's Figure 3: how the trainings went."""

from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mmseg_margin.report import (
    colours_of,
    new_figure,
    save_figure,
    tidy,
    title_lines,
)
from mmseg_margin.terminal import drawable

from .results import Comparison

# Train and validation share a colour, so their lines differ.
LINES = {'train': ('--', 'training'), 'val': ('-', 'validation')}
QUANTITIES = {'mIoU': 'mIoU in %', 'loss': 'loss'}


class Curve(NamedTuple):
    """Mean and standard deviation over the runs at each iteration."""

    iterations: NDArray
    mean: NDArray
    deviation: NDArray


class CurvePictures(NamedTuple):
    """Files: all objectives in one, and one of each objective."""

    together: Path
    single: dict[str, Path]


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
            [np.std(values[i], ddof=len(values[i]) > 1) for i in iterations]
        ),
    )


def draw_curves(comparison: Comparison, folder: Path) -> CurvePictures | None:
    """Draw what has curves; None if nothing has."""
    colours = {
        name: colour
        for name, colour in colours_of(comparison.names).items()
        if any(any(run.curves.values()) for run in comparison.runs(name))
    }
    if not colours:
        return None
    return CurvePictures(
        _draw_together(comparison, colours, folder / 'curves.png'),
        {
            name: _draw_one(
                comparison, name, colour, folder / f'curves-{i}.png'
            )
            for i, (name, colour) in enumerate(colours.items(), 1)
        },
    )


def _draw_together(
    comparison: Comparison, colours: dict[str, str], path: Path
) -> Path:
    figure = new_figure(6.4, 4.6)
    axes = figure.subplots()
    for name, colour in colours.items():
        _draw(axes, _curve(comparison, name, 'val_mIoU'), colour, '-', name)
    axes.set_xlabel('iteration')
    axes.set_ylabel('validation mIoU in %')
    tidy(axes)
    columns = 4 if max(map(len, colours)) < 16 else 1
    figure.legend(loc='outside lower center', ncols=columns, frameon=False)
    return save_figure(figure, path)


def _draw_one(
    comparison: Comparison, name: str, colour: str, path: Path
) -> Path:
    figure = new_figure(4.4, 4.6)
    panels = figure.subplots(2, 1, sharex=True)
    for axes, quantity in zip(panels, QUANTITIES, strict=True):
        for split, (line, label) in LINES.items():
            curve = _curve(comparison, name, f'{split}_{quantity}')
            _draw(axes, curve, colour, line, label)
        axes.set_ylabel(QUANTITIES[quantity])
        tidy(axes)
    panels[0].set_ylim(0, 100)
    panels[0].set_title(title_lines(name), fontsize=11)
    panels[0].legend(frameon=False)
    panels[1].set_xlabel('iteration')
    return save_figure(figure, path)


def _curve(comparison: Comparison, name: str, quantity: str) -> Curve:
    runs = comparison.runs(name)
    return average_curve([run.curves.get(quantity, []) for run in runs])


def _draw(axes: Any, curve: Curve, colour: str, line: str, label: str) -> None:
    x, mean, deviation = curve
    style = dict(marker='.', color=colour, label=drawable(label))
    axes.plot(x, mean, line, **style)
    band = (mean - deviation, mean + deviation)
    axes.fill_between(x, *band, color=colour, alpha=0.15, linewidth=0)
