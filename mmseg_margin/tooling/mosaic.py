"""Pictures people can compare: images, predictions, ground truth."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from mmseg_margin.atomic_write import atomic_write
from mmseg_margin.terminal import drawable

Image = NDArray[np.uint8]
PIXELS_PER_COLUMN = 312


def paint(labels: Image, palette: Sequence[Sequence[int]]) -> Image:
    """Colour a label image (H, W); what is no class becomes white."""
    colours = np.full((256, 3), 255, dtype=np.uint8)
    colours[: len(palette)] = palette
    return colours[labels]


def draw_mosaic(
    rows: Sequence[Sequence[Image]],
    titles: Sequence[str],
    classes: Sequence[str],
    palette: Sequence[Sequence[int]],
    path: str,
    column_inches: float = 2.4,
) -> None:
    """Write a PNG with one row of RGB images for each sample."""
    height, width = rows[0][0].shape[:2]
    legend_columns = max(1, min(len(classes), 6))
    legend_rows = -(-len(classes) // legend_columns)
    figure = Figure(
        figsize=(
            column_inches * len(titles),
            column_inches * len(rows) * height / width
            + 0.5
            + 0.2 * legend_rows,
        ),
        layout='constrained',
    )
    axes = figure.subplots(len(rows), len(titles), squeeze=False)
    for row, images in zip(axes, rows, strict=True):
        for axis, image in zip(row, images, strict=True):
            axis.imshow(image)
            axis.set_axis_off()
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=10)
    handles = [
        Patch(
            facecolor=(colour[0] / 255, colour[1] / 255, colour[2] / 255),
            edgecolor='grey',
            label=drawable(name),
        )
        for name, colour in zip(classes, palette, strict=True)
    ]
    figure.legend(
        handles=handles,
        loc='outside lower center',
        ncols=legend_columns,
        fontsize=8,
    )
    with atomic_write(path) as draft:
        figure.savefig(
            draft,
            dpi=PIXELS_PER_COLUMN / column_inches,
            format=Path(path).suffix[1:] or 'png',
        )
