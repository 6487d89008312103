"""Small data sets on disk, and the slow way to count their labels."""

import io
import struct
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mmseg.datasets import BaseSegDataset
from PIL import Image

from tests.layouts import label_array, write_image, write_label

CLASSES = ('sky', 'road', 'tree', 'car')
PIPELINE = ({'type': 'LoadImageFromFile'}, {'type': 'LoadAnnotations'})
SIZE = (48, 32)


def write_set(
    root: Path,
    num_files: int = 6,
    values: Sequence[int] = (0, 1, 2, 3, 255),
    size: tuple[int, int] = SIZE,
    palette: bool = False,
) -> Path:
    """Images in ``img``, labels of the same name in ``ann``."""
    for index in range(num_files):
        name = f'{index:04d}.png'
        write_image(root / 'img' / name, size, index)
        label = label_array(size, values, index)
        write_label(root / 'ann' / name, label, palette)
    return root


def write_label_file(root: Path, index: int, pixels: np.ndarray) -> Path:
    """Replace one label by an array of any type that Pillow can store."""
    path = root / 'ann' / f'{index:04d}.png'
    Image.fromarray(pixels).save(path)
    return path


def bomb_png(side: int) -> bytes:
    """A small file that declares a huge square image."""
    with io.BytesIO() as file:
        Image.new('L', (1, 1)).save(file, 'PNG')
        content = file.getvalue()
    header = b'IHDR' + struct.pack('>II', side, side) + content[24:29]
    checksum = struct.pack('>I', zlib.crc32(header))
    return content[:12] + header + checksum + content[33:]


def open_set(
    root: Path,
    classes: Sequence[str] | None = CLASSES,
    pipeline: Sequence[Any] = PIPELINE,
    img_suffix: str = '.png',
    **kwargs: Any,
) -> BaseSegDataset:
    """The data set that :func:`write_set` wrote."""
    return BaseSegDataset(
        data_root=str(root),
        img_suffix=img_suffix,
        data_prefix={'img_path': 'img', 'seg_map_path': 'ann'},
        metainfo={'classes': classes} if classes else None,
        pipeline=list(pipeline),
        **kwargs,
    )


def count_pixel_by_pixel(
    leaves: Sequence[BaseSegDataset], num_classes: int, ignore_index: int = 255
) -> tuple[list[int], list[int], int]:
    """Counts, images and ignored pixels from the pipelines' own loaders."""
    pixels: Counter = Counter()
    images: Counter = Counter()
    for leaf in leaves:
        for index in range(len(leaf)):
            results = leaf.get_data_info(index)
            for transform in leaf.pipeline.transforms:
                results = transform(results)
            seen = Counter(results['gt_seg_map'].ravel().tolist())
            pixels.update(seen)
            images.update(seen.keys())
    classes = list(range(num_classes))
    return (
        [pixels[k] if k != ignore_index else 0 for k in classes],
        [images[k] if k != ignore_index else 0 for k in classes],
        pixels[ignore_index],
    )
