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

from mmseg_margin.stats import LabelReport, check_labels, collect_stats
from mmseg_margin.stats.scan import Collected
from tests.layouts import label_array, write_image, write_label

CLASSES = ('sky', 'road', 'tree', 'car')
PIPELINE = ({'type': 'LoadImageFromFile'}, {'type': 'LoadAnnotations'})
PREFIXES = ('img_path', 'seg_map_path')
SIZE = (48, 32)


class Streets(BaseSegDataset):
    """With attributes that are named like those of wrappers."""

    METAINFO = {'classes': CLASSES, 'palette': [[i] * 3 for i in range(4)]}
    dataset = 'streets'
    datasets = ('streets',)


def write_set(
    root: Path,
    num_files: int = 6,
    values: Sequence[int] = (0, 1, 2, 3, 255),
    size: tuple[int, int] = SIZE,
) -> Path:
    """Images in ``img``, labels of the same name in ``ann``."""
    for index in range(num_files):
        name = f'{index:04d}.png'
        write_image(root / 'img' / name, size, index)
        write_label(root / 'ann' / name, label_array(size, values, index))
    return root


def write_label_file(root: Path, index: int, pixels: np.ndarray) -> Path:
    """Replace one label by an array of any type that Pillow can store."""
    path = root / 'ann' / f'{index:04d}.png'
    Image.fromarray(pixels).save(path)
    return path


def spoil_labels(root: Path) -> None:
    """Five labels: cut off, missing, empty, no image, no class."""
    paths = [root / 'ann' / f'{index:04d}.png' for index in range(4)]
    whole = paths[0].read_bytes()
    paths[0].write_bytes(whole[: len(whole) // 2])
    paths[1].unlink()
    paths[2].write_bytes(b'')
    paths[3].write_bytes(bytes(500))
    write_label_file(root, 4, np.full(SIZE[::-1], 200, np.uint8))


def encode(pixels: np.ndarray, fmt: str = 'PNG', **options: Any) -> bytes:
    """The bytes of an image file."""
    return _encode(Image.fromarray(pixels), fmt, **options)


def encode_palette(pixels: np.ndarray, bits: int, **options: Any) -> bytes:
    """The lowest bits of the pixels, which are indices of colours."""
    image = Image.fromarray(pixels & (2**bits - 1))
    image.putpalette([7 * i % 256 for i in range(3 * 2**bits)])
    return _encode(image, 'PNG', bits=bits, **options)


def _encode(image: Image.Image, fmt: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, fmt, **options)
    return file.getvalue()


def write_png(
    pixels: np.ndarray, declared: tuple[int, int] | None = None
) -> bytes:
    """A grey PNG by hand, which may declare another width and height."""
    rows = b''.join(b'\0' + row.tobytes() for row in pixels)
    size = struct.pack('>II', *(declared or pixels.shape[::-1]))
    return (
        b'\x89PNG\r\n\x1a\n'
        + png_chunk(b'IHDR', size + bytes([8, 0, 0, 0, 0]))
        + png_chunk(b'IDAT', zlib.compress(rows))
        + png_chunk(b'IEND', b'')
    )


def png_chunk(name: bytes, data: bytes) -> bytes:
    checksum = struct.pack('>I', zlib.crc32(name + data))
    return struct.pack('>I', len(data)) + name + data + checksum


def open_set(
    root: Path,
    classes: Sequence[str] | None = CLASSES,
    pipeline: Sequence[Any] = PIPELINE,
    img_suffix: str = '.png',
    kind: type[BaseSegDataset] = BaseSegDataset,
    folders: tuple[str, str] = ('img', 'ann'),
    **kwargs: Any,
) -> BaseSegDataset:
    """The data set that :func:`write_set` wrote, or one of another kind."""
    return kind(
        data_root=str(root),
        img_suffix=img_suffix,
        data_prefix=dict(zip(PREFIXES, folders, strict=True)),
        metainfo={'classes': classes} if classes else None,
        pipeline=list(pipeline),
        **kwargs,
    )


def report_on(
    dataset: Any, *heads: tuple[int, int], **settings: Any
) -> LabelReport:
    """The label check of a data set, or of a folder of :func:`write_set`.

    Each head has so many classes and ignores this label.
    """
    if isinstance(dataset, Path):
        dataset = open_set(dataset)
    model = {
        'auxiliary_head': [
            {'type': 'FCNHead', 'num_classes': size, 'ignore_index': ignored}
            for size, ignored in heads or [(4, 255)]
        ]
    }
    return check_labels(dataset, model, **settings)


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
            values = results['gt_seg_map'].ravel().tolist()
            pixels.update(values)
            images.update({*values})
    ignored = pixels.pop(ignore_index, 0)
    images.pop(ignore_index, 0)
    classes = range(num_classes)
    return [pixels[k] for k in classes], [images[k] for k in classes], ignored


def check_scan(
    dataset: Any,
    leaves: Sequence[BaseSegDataset] = (),
    num_classes: int | None = None,
    ignore_index: int = 255,
) -> Collected:
    """Compare a scan without problems with counting pixel by pixel."""
    collected = collect_stats(dataset, num_classes, ignore_index)
    stats = collected.stats
    counted = count_pixel_by_pixel(
        leaves or [dataset], len(stats.classes), ignore_index
    )
    assert (stats.counts, stats.images, stats.ignored) == counted
    assert stats.total > 0
    assert not collected.findings
    return collected
