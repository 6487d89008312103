"""Pictures of images, predictions and ground truth side by side."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from mmengine.config import Config
from mmseg.registry import DATASETS, TRANSFORMS
from numpy.typing import NDArray

from mmseg_margin.atomic_write import atomic_write
from mmseg_margin.config_tools import evenly_spaced, leaf_datasets
from mmseg_margin.errors import drawable
from mmseg_margin.evaluation.tta import loads_annotations

Image = NDArray[np.uint8]
Palette = Sequence[Sequence[int]]
COLUMN_INCHES, DPI = 2.4, 130
LEGEND_COLUMNS = 6


def images_of_test_split(
    cfg: Config, number: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Evenly spaced images with labels, and the metainfo."""
    settings = cfg.test_dataloader.dataset
    steps = leaf_datasets(settings)[0].get('pipeline') or []
    loading = next(
        filter(loads_annotations, steps), {'type': 'LoadAnnotations'}
    )
    dataset = DATASETS.build(settings)
    infos = map(dataset.get_data_info, evenly_spaced(len(dataset), number))
    load_labels = TRANSFORMS.build(loading)
    return [load_labels(info) for info in infos], dataset.metainfo


def paint(labels: Image, palette: Palette) -> Image:
    """Colour a label image (H, W); pixels without a class become white."""
    colours = np.full((256, 3), 255, dtype=np.uint8)
    colours[: len(palette)] = palette
    return colours[labels]


def draw_mosaic(
    rows: Sequence[Sequence[Image]],
    titles: Sequence[str],
    classes: Sequence[str],
    palette: Palette,
    path: Path,
) -> None:
    """Write a picture with the RGB images of each sample in a row.

    The columns have titles; classes and palette make the legend.
    """
    height, width = rows[0][0].shape[:2]
    legend = 0.2 * -(-len(classes) // LEGEND_COLUMNS)
    lines = len(rows) * COLUMN_INCHES * height / width
    size = COLUMN_INCHES * len(titles), lines + 0.5 + legend
    figure = Figure(figsize=size, layout='constrained')
    axes = figure.subplots(len(rows), len(titles), squeeze=False)
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=8)
    for axis, image in zip(axes.flat, chain(*rows), strict=True):
        axis.set_axis_off()
        # Mixed colours would belong to no class.
        axis.imshow(image, interpolation='nearest')
    handles = [
        Patch(
            facecolor=f'#{bytes(colour).hex()}',
            edgecolor='grey',
            label=drawable(name),
        )
        for name, colour in zip(classes, palette, strict=True)
    ]
    figure.legend(
        handles=handles,
        loc='outside lower center',
        ncols=min(len(classes), LEGEND_COLUMNS),
        fontsize=8,
    )
    with atomic_write(path) as draft:
        figure.savefig(draft, dpi=DPI, format=path.suffix[1:] or 'png')
