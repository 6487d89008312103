"""The label scan beside decoding alone and the usual pixel loop."""

import argparse
import io
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from timeit import timeit
from typing import Any

import mmcv
import numpy as np
from mmengine.registry import init_default_scope
from mmseg.datasets import BaseSegDataset
from PIL import Image

from mmseg_margin.stats import StatsCache, collect_stats

from .tables import print_table

NUM_CLASSES = 19
SIZE = (2048, 1024)
CELL = 256
PIPELINE = ({'type': 'LoadImageFromFile'}, {'type': 'LoadAnnotations'})


def run(args: argparse.Namespace) -> None:
    """Measure, and print a table."""
    init_default_scope('mmseg')
    if args.folder:
        measure(args.folder, '', '', args)
        return
    with tempfile.TemporaryDirectory() as folder:
        write_labels(Path(folder), args.files)
        measure(Path(folder), 'img', 'ann', args)


def measure(
    root: Path, images: str, labels: str, args: argparse.Namespace
) -> None:
    """Milliseconds per file, interleaved; the first round warms up."""
    dataset = BaseSegDataset(
        data_root=str(root),
        img_suffix='.png',
        data_prefix={'img_path': images, 'seg_map_path': labels},
        pipeline=list(PIPELINE),
    )
    paths = [
        dataset.get_data_info(i)['seg_map_path'] for i in range(len(dataset))
    ]
    with tempfile.TemporaryDirectory() as folder:
        cached = partial(collect_stats, dataset, cache=StatsCache(folder))
        cached()
        tasks: dict[str, Callable[[], Any]] = {
            'decoding with Pillow': lambda: list(map(decode, paths)),
            'the usual loop': lambda: list(map(count_pixels, paths)),
            'the scan': lambda: collect_stats(dataset, num_threads=1),
            'the scan, in threads': lambda: collect_stats(
                dataset, num_threads=args.threads
            ),
            'the scan, cached': cached,
        }
        rounds = [
            [timeit(task, number=1) for task in tasks.values()]
            for _ in range(args.repeats + 1)
        ]
    times = 1e3 * np.array(rounds[1:]).T / len(paths)
    rows = [
        (name, *(f'{x:.3f}' for x in (np.median(ms), ms.min(), ms.max())))
        for name, ms in zip(tasks, times, strict=True)
    ]
    title = f'{len(paths)} label files, milliseconds per file'
    print_table(title, ('', 'median', 'min', 'max'), rows)


def decode(path: str) -> None:
    """Pillow's decoding alone."""
    with Image.open(io.BytesIO(Path(path).read_bytes())) as image:
        image.load()


def count_pixels(path: str) -> np.ndarray:
    """Load, apply ``reduce_zero_label`` to the pixels, and count them."""
    label = mmcv.imread(path, flag='unchanged', backend='pillow')
    label = label.astype(np.uint8) - 1
    label[label == 254] = 255
    return np.bincount(label.ravel(), minlength=256)


def write_labels(root: Path, num_files: int) -> None:
    """Soft blobs and an ignored border, about 20 KB as in Cityscapes."""
    width, height = SIZE
    for folder in ('img', 'ann'):
        (root / folder).mkdir(parents=True)
    for index in range(num_files):
        rng = np.random.default_rng(index)
        grid = (NUM_CLASSES, height // CELL + 1, width // CELL + 1)
        coarse = rng.standard_normal(grid, np.float32)
        coarse[:3] += 0.8  # a few classes cover most of a scene
        scores = [
            mmcv.imresize(x, SIZE, interpolation='bicubic') for x in coarse
        ]
        label = np.argmax(scores, axis=0).astype(np.uint8)
        label[-height // 16 :] = 255
        Image.fromarray(label).save(root / 'ann' / f'{index:05d}.png')
        Image.new('L', SIZE).save(root / 'img' / f'{index:05d}.png')
