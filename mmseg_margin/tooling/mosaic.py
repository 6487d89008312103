"""Pictures people can compare: images, predictions, ground truth."""

from collections.abc import Sequence

import matplotlib
import numpy as np
from numpy.typing import NDArray

matplotlib.use('Agg')

from matplotlib import pyplot as plt
from matplotlib.patches import Patch

Image = NDArray[np.uint8]


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
) -> None:
    """Write a PNG with one row of RGB images for each sample."""
    height, width = rows[0][0].shape[:2]
    scale = 2.4
    figure, axes = plt.subplots(
        len(rows),
        len(titles),
        figsize=(
            scale * len(titles),
            scale * len(rows) * height / width + 0.7,
        ),
        squeeze=False,
        layout='constrained',
    )
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
            label=name,
        )
        for name, colour in zip(classes, palette, strict=True)
    ]
    figure.legend(
        handles=handles,
        loc='outside lower center',
        ncols=min(len(handles), 6),
        fontsize=8,
    )
    figure.savefig(path, dpi=130)
    plt.close(figure)
