"""Label files to measure the scan with."""

import time
from collections.abc import Sequence
from pathlib import Path

import mmcv
import numpy as np
from mmseg.datasets import BaseSegDataset
from PIL import Image

from mmseg_margin.stats.cache import SAFE_AGE_NS

NUM_CLASSES = 19
CELL = 256


def write_labels(
    root: Path, num_files: int, size: tuple[int, int], palette: bool
) -> None:
    """Label maps of soft blobs and an ignored border.

    At 2048x1024 a file has about 20 KB, like the labels of Cityscapes.
    """
    width, height = size
    for folder in ('img', 'ann'):
        (root / folder).mkdir(parents=True)
    colours = np.random.default_rng(0).integers(0, 256, 768).tolist()
    for index in range(num_files):
        rng = np.random.default_rng(index)
        grid = (height // CELL + 1, width // CELL + 1)
        coarse = rng.standard_normal((NUM_CLASSES, *grid), np.float32)
        coarse[:3] += 0.8  # a few classes cover most of a scene
        scores = [
            mmcv.imresize(field, size, interpolation='bicubic')
            for field in coarse
        ]
        label = np.argmax(scores, axis=0).astype(np.uint8)
        label[-height // 16 :] = 255
        image = Image.fromarray(label)
        if palette:
            image.putpalette(colours)
        image.save(root / 'ann' / f'{index:05d}.png')
        Image.new('L', size).save(root / 'img' / f'{index:05d}.png')


def wait_until_cached() -> None:
    """Statistics of files that were changed a moment ago are not kept."""
    time.sleep(SAFE_AGE_NS / 1e9)


def open_labels(root: Path, pipeline: Sequence[dict]) -> BaseSegDataset:
    """The data set that :func:`write_labels` wrote."""
    return BaseSegDataset(
        data_root=str(root),
        img_suffix='.png',
        data_prefix={'img_path': 'img', 'seg_map_path': 'ann'},
        metainfo={'classes': [f'class {i}' for i in range(NUM_CLASSES)]},
        pipeline=list(pipeline),
    )
