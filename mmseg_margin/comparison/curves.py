"""The paper's Figure 3: how the trainings went."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmseg_margin.report.pictures import colours_of, picture, title_lines
from mmseg_margin.terminal import drawable

from .records import RunResult
from .results import Comparison

# Train and validation share a colour, so their lines differ.
LINES = {'train': ('--', 'training'), 'val': ('-', 'validation')}
QUANTITIES = {'mIoU': 'mIoU in %', 'loss': 'loss'}


def draw_curves(
    comparison: Comparison, folder: Path
) -> tuple[Path, dict[str, Path]] | None:
    """A file with all objectives and one of each; None without curves."""
    colours = {
        name: colour
        for name, colour in colours_of(comparison.names).items()
        if any(any(run.curves.values()) for run in comparison.runs(name))
    }
    if not colours:
        return None
    together = folder / 'curves.png'
    with picture(together, 6.4, 4.6) as figure:
        axes = figure.subplots()
        for name, colour in colours.items():
            _draw(axes, comparison.runs(name), 'val_mIoU', colour, '-', name)
        axes.set_xlabel('iteration')
        axes.set_ylabel('validation mIoU in %')
        columns = 4 if max(map(len, colours)) < 16 else 1
        figure.legend(loc='outside lower center', ncols=columns, frameon=False)
    single = {}
    for i, (name, colour) in enumerate(colours.items(), 1):
        single[name] = folder / f'curves-{i}.png'
        _draw_one(comparison.runs(name), name, colour, single[name])
    return together, single


def average_curve(
    curves: list[list[tuple[int, float]]],
) -> tuple[NDArray, NDArray, NDArray]:
    """Iterations, and mean and deviation of what the runs have at each."""
    values: dict[int, list[float]] = defaultdict(list)
    for points in curves:
        for iteration, value in points:
            values[iteration].append(value)
    found = sorted(values.items())
    return (
        np.array([iteration for iteration, _ in found]),
        np.array([np.mean(each) for _, each in found]),
        np.array([np.std(each, ddof=len(each) > 1) for _, each in found]),
    )


def _draw_one(
    runs: list[RunResult], name: str, colour: str, path: Path
) -> None:
    """The mIoU above the loss, each on training and validation images."""
    with picture(path, 4.4, 4.6) as figure:
        panels = figure.subplots(2, 1, sharex=True)
        for axes, quantity in zip(panels, QUANTITIES, strict=True):
            for split, (line, label) in LINES.items():
                _draw(axes, runs, f'{split}_{quantity}', colour, line, label)
            axes.set_ylabel(QUANTITIES[quantity])
        panels[0].set_ylim(0, 100)
        panels[0].set_title(title_lines(name), fontsize=11)
        panels[0].legend(frameon=False)
        panels[1].set_xlabel('iteration')


def _draw(
    axes: Any,
    runs: list[RunResult],
    curve: str,
    colour: str,
    line: str,
    label: str,
) -> None:
    x, mean, deviation = average_curve([r.curves.get(curve, []) for r in runs])
    style = dict(marker='.', color=colour, label=drawable(label))
    axes.plot(x, mean, line, **style)
    band = (mean - deviation, mean + deviation)
    axes.fill_between(x, *band, color=colour, alpha=0.15, linewidth=0)
