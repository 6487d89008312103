"""Pictures of images, predictions and ground truth side by side."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count, cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from mmengine.config import Config
from mmengine.registry import init_default_scope
from mmseg.apis import inference_model, init_model
from mmseg.registry import DATASETS, TRANSFORMS
from numpy.typing import NDArray
from torch import nn

from mmseg_margin.atomic_write import atomic_write
from mmseg_margin.config_tools import evenly_spaced, leaf_datasets
from mmseg_margin.errors import MissingFileError, drawable
from mmseg_margin.evaluation.tta import loads_annotations

Image = NDArray[np.uint8]
Palette = Sequence[Sequence[int]]
PIXELS_PER_COLUMN = 312
LEGEND_COLUMNS = 6
# How the name of a sample is drawn into its image.
NAME: dict[str, Any] = dict(
    va='top',
    fontsize=6,
    color='white',
    bbox=dict(facecolor='black', edgecolor='none', alpha=0.6, pad=1),
)
IMAGE_SUFFIXES = ('.bmp', '.jpeg', '.jpg', '.png', '.tif', '.tiff', '.webp')


def load_model(cfg: Config, checkpoint: str) -> nn.Module:
    """The model of a config, ready to predict."""
    init_default_scope(cfg.get('default_scope', 'mmseg'))
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    return init_model(cfg, checkpoint, device)


def images_of_test_split(
    cfg: Config, number: int | None = None
) -> tuple[Iterator[dict[str, Any]], dict[str, Any]]:
    """Images with labels, all or evenly spaced ones, and the metainfo."""
    init_default_scope(cfg.get('default_scope', 'mmseg'))
    settings = cfg.test_dataloader.dataset
    steps = leaf_datasets(settings)[0].get('pipeline') or []
    loading = next(
        filter(loads_annotations, steps), {'type': 'LoadAnnotations'}
    )
    dataset = DATASETS.build(settings)
    infos = map(dataset.get_data_info, evenly_spaced(len(dataset), number))
    return map(TRANSFORMS.build(loading), infos), dataset.metainfo


def own_images(paths: Sequence[str]) -> list[dict[str, Any]]:
    """Samples of the given files and of all images in the given folders."""
    found: list[Path] = []
    for path in map(Path, paths):
        inside = sorted(path.glob('*'))
        images = [f for f in inside if f.suffix.lower() in IMAGE_SUFFIXES]
        if path.is_file():
            images = [path]
        if not images:
            raise MissingFileError(
                f'There is no image {path}, and no folder of that name with '
                f'images ({", ".join(IMAGE_SUFFIXES)}): check --input.'
            )
        found += images
    return [{'img_path': str(path)} for path in found]


def predict_rows(
    models: Sequence[nn.Module],
    samples: Iterable[dict[str, Any]],
    palette: Palette,
) -> Iterator[tuple[Image, ...]]:
    """RGB images (H, W, 3): image, predictions and, if known, labels."""
    load_image = TRANSFORMS.build(dict(type='LoadImageFromFile'))
    for sample in samples:
        image = load_image(dict(sample))['img']
        row = [np.ascontiguousarray(image[..., ::-1])]
        for model in models:
            result = inference_model(model, sample['img_path'])
            labels = result.pred_sem_seg.data[0].cpu().numpy()
            row.append(paint(labels.astype(np.uint8), palette))
        if 'gt_seg_map' in sample:
            row.append(paint(sample['gt_seg_map'], palette))
        yield tuple(row)


def paint(labels: Image, palette: Palette) -> Image:
    """Colour a label image (H, W); pixels without a class become white."""
    colours = np.full((256, 3), 255, dtype=np.uint8)
    colours[: len(palette)] = palette
    return colours[labels]


def titles_of(checkpoints: Sequence[str]) -> list[str]:
    """Names of the files, with their folders if the names are the same."""
    if len(checkpoints) == 1:
        return ['prediction']
    names = [Path(path).name for path in checkpoints]
    if len(set(names)) < len(names):
        folders = [Path(path).parent.name for path in checkpoints]
        names = ['/'.join(pair) for pair in zip(folders, names, strict=True)]
    return [drawable(name) for name in names]


def free_path(path: Path) -> Path:
    """The path, or the first of ``<stem>_1``, ``_2``, ... that is free."""
    stem = path.stem
    for number in count(1):
        if not path.exists():
            break
        path = path.with_stem(f'{stem}_{number}')
    return path


def samples_side_by_side(rows: Sequence[Sequence[Image]]) -> int:
    """How many samples in a line make the picture roughly square."""
    height, width = rows[0][0].shape[:2]
    lines = len(rows) * height / (width * len(rows[0]))
    return max(1, min(len(rows), round(lines**0.5)))


def draw_mosaic(
    rows: Sequence[Sequence[Image]],
    titles: Sequence[str],
    classes: Sequence[str],
    palette: Palette,
    path: str,
    column_inches: float = 2.4,
    names: Sequence[str] = (),
    side_by_side: int = 1,
) -> None:
    """Write a picture with the RGB images of each sample in a row.

    Every image of a sample has a title and is ``column_inches`` wide. Classes
    and palette make the legend. ``names`` of the samples are drawn into their
    first image, and ``side_by_side`` samples into one line.
    """
    height, width = rows[0][0].shape[:2]
    lines, columns = -(-len(rows) // side_by_side), len(titles)
    legend = 0.2 * -(-len(classes) // LEGEND_COLUMNS)
    size = (
        column_inches * columns * side_by_side,
        column_inches * lines * height / width + 0.5 + legend,
    )
    figure = Figure(figsize=size, layout='constrained')
    axes = figure.subplots(lines, columns * side_by_side, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, title in zip(axes[0], cycle(titles), strict=False):
        axis.set_title(title, fontsize=10)
    for axis, image in zip(axes.flat, chain.from_iterable(rows), strict=False):
        axis.imshow(image)
    for axis, name in zip(axes.flat[::columns], names, strict=False):
        axis.text(0.01, 0.98, drawable(name), transform=axis.transAxes, **NAME)
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
        ncols=max(1, min(len(classes), LEGEND_COLUMNS)),
        fontsize=8,
    )
    with atomic_write(path) as draft:
        figure.savefig(
            draft,
            dpi=PIXELS_PER_COLUMN / column_inches,
            format=Path(path).suffix[1:] or 'png',
        )
