"""Plots of a comparison: curves and predictions, as in Figures 3 and 4."""

import heapq
from collections.abc import Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

from mmseg_margin.report.pages import Block, Picture
from mmseg_margin.report.pictures import COLOURS, picture, short, title_lines
from mmseg_margin.tooling.mosaic import draw_mosaic, paint

from .records import PREDICTIONS, Comparison, run_folder

PANELS = {'mIoU': 'mIoU in %', 'loss': 'loss'}
LINES = {'train': ('--', 'training'), 'val': ('-', 'validation')}
WIDTH = 480
MOSAIC_INCHES = 14.0


def curves_of(comparison: Comparison) -> pd.DataFrame:
    """Mean and deviation over the seeds, by objective, curve, iteration."""
    points = [
        (run.name, curve, iteration, value)
        for run in comparison.runs
        for curve, values in run.curves.items()
        for iteration, value in values
    ]
    keys = ['objective', 'curve', 'iteration']
    frame = pd.DataFrame(points, columns=[*keys, 'value'])
    found = frame.groupby(keys)['value'].agg(['mean', 'std'])
    return found.fillna({'std': 0.0})  # of a single seed


def curve_blocks(comparison: Comparison, folder: Path) -> list[Block]:
    """All objectives in one plot, and one plot of each."""
    curves = curves_of(comparison)
    drawn = [n for n in comparison.names if n in curves.index]
    if not drawn:
        return ['No run has recorded any curves.']
    colours = [COLOURS[i % len(COLOURS)] for i in range(len(drawn))]
    together = folder / 'curves.png'
    with picture(together, 6.4, 4.6) as figure:
        axes = figure.subplots()
        for name, colour in zip(drawn, colours, strict=True):
            points = curves.loc[name, 'val_mIoU']
            _draw_curve(axes, points, '-', short(name), colour)
        axes.set(xlabel='iteration', ylabel='validation mIoU in %')
        columns = 4 if max(map(len, drawn)) < 16 else 1
        figure.legend(loc='outside lower center', ncols=columns, frameon=False)
    single = []
    for i, (name, colour) in enumerate(zip(drawn, colours, strict=True), 1):
        file = folder / f'curves-{i}.png'
        with picture(file, 4.4, 4.6) as figure:
            column = figure.subplots(2, 1, sharex=True)
            for axes, quantity in zip(column, PANELS, strict=True):
                for split, (line, label) in LINES.items():
                    points = curves.loc[name, f'{split}_{quantity}']
                    _draw_curve(axes, points, line, label, colour)
                axes.set_ylabel(PANELS[quantity])
            column[0].set_ylim(0, 100)
            column[0].set_title(title_lines(name), fontsize=11)
            column[0].legend(frameon=False, fontsize=8)
            column[1].set_xlabel('iteration')
        single.append(Picture(file, f'{name}: mIoU and loss.'))
    return [
        'Means over the seeds; the bands are one standard deviation wide on '
        'either side. The losses of different objectives have different units '
        'and cannot be compared with each other.',
        Picture(together, 'Validation mIoU of all objectives.'),
        single,
    ]


def _draw_curve(
    axes: Any, points: pd.DataFrame, line: str, label: str, colour: str
) -> None:
    x, mean, deviation = points.index, points['mean'], points['std']
    axes.plot(x, mean, line, marker='.', color=colour, label=label)
    band = (mean - deviation, mean + deviation)
    axes.fill_between(x, *band, color=colour, alpha=0.15, linewidth=0)


def draw_examples(
    comparison: Comparison,
    out: Path,
    samples: Iterable[dict[str, Any]],
    folder: Path,
    rows: int = 4,
) -> Picture | None:
    """A mosaic of the samples on which the objectives differ most."""
    classes, palette = (comparison.common[k] for k in ('classes', 'palette'))
    folders = {
        name: predicted
        for name in comparison.names
        if (predicted := run_folder(out, name, 0) / PREDICTIONS).is_dir()
    }
    chosen: list[tuple[float, Path, list[NDArray]]] = []
    for sample in samples:
        image, truth = Path(sample['img_path']), sample['gt_seg_map']
        files = [place / f'{image.stem}.png' for place in folders.values()]
        if files and all(file.exists() for file in files):
            labels = [np.asarray(Image.open(file)) for file in files]
            fraction = disagreement(labels, truth < len(classes))
            chosen.append((fraction, image, [*labels, truth]))
            chosen = heapq.nlargest(rows, chosen, key=itemgetter(0))
    if not chosen:
        return None
    images = []
    for _, image, labels in chosen:
        with Image.open(image) as file:
            photo = np.asarray(file.convert('RGB'))
        painted = [paint(each, palette) for each in labels]
        # By leaving out pixels: mixed colours would belong to no class.
        step = max(1, photo.shape[1] // WIDTH)
        images.append([p[::step, ::step] for p in (photo, *painted)])
    present = {k for _, _, labels in chosen for k in np.unique(labels)}
    shown = [k for k in range(len(classes)) if k in present]
    path = folder / 'examples.png'
    draw_mosaic(
        images,
        ['image', *map(title_lines, folders), 'ground truth'],
        [classes[k] for k in shown],
        [palette[k] for k in shown],
        str(path),
        # Fewer inches make the letters of a wide mosaic larger.
        column_inches=min(2.4, MOSAIC_INCHES / len(images[0])),
    )
    names = ', '.join(f'{image.stem} ({d:.1%})' for d, image, _ in chosen)
    return Picture(
        path,
        'Predictions with seed 0 on the images where the objectives differ '
        f'on most labelled pixels: {names}. White is ignored.',
        wide=True,
    )


def disagreement(predictions: Sequence[NDArray], labelled: NDArray) -> float:
    """Fraction of the labelled pixels that not all predict the same."""
    differs = np.any([each != predictions[0] for each in predictions], axis=0)
    return float(differs[labelled].mean()) if labelled.any() else 0.0
