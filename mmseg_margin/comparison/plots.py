"""Plots of a comparison: curves and predictions, as in Figures 3 and 4."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from mmseg_margin.report.pages import Picture
from mmseg_margin.report.pictures import BLUE, ORANGE, picture, short
from mmseg_margin.tooling.mosaic import draw_mosaic, paint

from .records import PREDICTIONS, Comparison, run_folder

CURVES_CAPTION = (
    'Means over the seeds; the bands are one standard deviation wide on '
    'either side. The losses of different objectives have different units and '
    'cannot be compared with each other; that of jaccard rises because its '
    'cross-entropy term ramps up.'
)
LINES = {'train': ('training', ORANGE), 'val': ('validation', BLUE)}
WIDTH = 480
MOSAIC_INCHES = 14.0


def draw_curves(comparison: Comparison, folder: Path) -> Picture | None:
    """mIoU and loss of each objective, on training and validation images."""
    points = [
        (run.name, curve, iteration, value)
        for run in comparison.runs
        for curve, values in run.curves.items()
        for iteration, value in values
    ]
    if not points:
        return None
    keys = ['objective', 'curve', 'iteration']
    frame = pd.DataFrame(points, columns=[*keys, 'value'])
    curves = frame.groupby(keys)['value'].agg(['mean', 'std'])
    curves = curves.fillna({'std': 0.0})  # of a single seed
    names = frame['objective'].unique()
    path = folder / 'curves.png'
    with picture(path, 9, 2.6 * len(names)) as figure:
        grid = figure.subplots(len(names), 2, squeeze=False)
        for row, name in zip(grid, names, strict=True):
            for axes, quantity in zip(row, ('mIoU', 'loss'), strict=True):
                for split, (label, colour) in LINES.items():
                    found = curves.loc[name, f'{split}_{quantity}']
                    x, mean, std = found.index, found['mean'], found['std']
                    style = {'color': colour, 'label': label}
                    axes.plot(x, mean, marker='.', **style)
                    band = (mean - std, mean + std)
                    axes.fill_between(x, *band, color=colour, alpha=0.15)
                axes.set(xlabel='iteration', ylabel=quantity)
                axes.legend(frameon=False, fontsize=8)
            row[0].set_ylim(0, 100)
            row[0].set_title(short(name), fontsize=11)
    return Picture(path, CURVES_CAPTION)


def draw_examples(
    comparison: Comparison,
    out: Path,
    samples: Iterable[dict[str, Any]],
    folder: Path,
) -> Picture | None:
    """The samples that every objective has predicted with seed 0."""
    classes, palette = (comparison.common[k] for k in ('classes', 'palette'))
    folders = {
        run.name: run_folder(out, run.name, 0) / PREDICTIONS
        for run in comparison.done
    }
    rows, names = [], []
    for sample in samples:
        image = Path(sample['img_path'])
        files = [place / f'{image.stem}.png' for place in folders.values()]
        if files and all(file.exists() for file in files):
            labels = [np.asarray(Image.open(file)) for file in files]
            labels.append(sample['gt_seg_map'])
            photo = np.asarray(Image.open(image).convert('RGB'))
            row = photo, *(paint(each, palette) for each in labels)
            # By leaving out pixels: mixed colours would belong to no class.
            step = max(1, photo.shape[1] // WIDTH)
            rows.append([each[::step, ::step] for each in row])
            names.append(image.name)
    if not rows:
        return None
    path = folder / 'examples.png'
    draw_mosaic(
        rows,
        ['image', *map(short, folders), 'ground truth'],
        classes,
        palette,
        str(path),
        # Fewer inches make the letters of a wide mosaic larger.
        column_inches=min(2.4, MOSAIC_INCHES / len(rows[0])),
        names=names,
    )
    return Picture(path, 'Predictions with seed 0. White is ignored.')
