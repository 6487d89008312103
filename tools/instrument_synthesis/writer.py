"""Writes the data set to disk, whole or not at all."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.errors import DataSetError, SettingError

from .instruments import CLASSES, PALETTE
from .rendering import render
from .scene import SPLITS, sample_scene

# Raised whenever the same settings give other pictures than before.
GENERATOR_VERSION = 1

SETTINGS_FILE = 'settings.json'
MINIMUM_SIDE = 32
FORMATS = ('png', 'jpg')


@dataclass(frozen=True)
class Settings:
    """What to make: two data sets of equal settings are equal."""

    width: int = 192
    height: int = 160
    train: int = 240
    val: int = 40
    test: int = 80
    seed: int = 0
    image_format: str = 'png'
    generator_version: int = GENERATOR_VERSION

    def __post_init__(self) -> None:
        if min(self.width, self.height) < MINIMUM_SIDE:
            raise SettingError(
                f'size {self.width} x {self.height} is too small to show an '
                f'instrument: use at least {MINIMUM_SIDE} on each side.'
            )
        if min(self.train, self.val, self.test) < 1:
            raise SettingError(
                f'counts {self.train} {self.val} {self.test}: every split '
                'needs at least 1 image.'
            )
        if self.seed < 0:
            raise SettingError(f'seed {self.seed} is negative: use 0 or more.')
        if self.image_format not in FORMATS:
            raise SettingError(
                f"image_format '{self.image_format}' is not supported: use "
                f'{" or ".join(FORMATS)}.'
            )


def write_dataset(
    root: Path,
    settings: Settings,
    progress: Callable[[int], None] = lambda number: None,
) -> bool:
    """Make the data set in ``root`` unless it is there already.

    It is written beside ``root`` and renamed when complete, so ``root`` never
    holds half of it. ``progress`` is told how many images are written.

    Returns:
        Whether anything was written.
    """
    if is_made(root, settings):
        return False
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f'.{root.name}-', dir=root.parent
    ) as scratch:
        folder = Path(scratch, root.name)
        for number, (name, image, label) in enumerate(draw(settings), 1):
            save_pair(folder, name, image, label, settings.image_format)
            progress(number)
        text = json.dumps(asdict(settings), indent=2)
        atomic_write_text(folder / SETTINGS_FILE, text + '\n')
        os.rename(folder, root)
    return True


def is_made(root: Path, settings: Settings) -> bool:
    """Whether ``root`` holds this data set; anything else is an error."""
    if not root.exists() or (root.is_dir() and not any(root.iterdir())):
        return False
    record = root / SETTINGS_FILE
    if not record.is_file():
        raise DataSetError(
            f"'{root}' exists and was not made by this generator: choose "
            'another folder or remove it.'
        )
    found, wanted = json.loads(record.read_text('utf-8')), asdict(settings)
    if found != wanted:
        differing = ', '.join(
            f'{key} {found.get(key)} instead of {wanted.get(key)}'
            for key in sorted({*found, *wanted})
            if found.get(key) != wanted.get(key)
        )
        raise DataSetError(
            f"'{root}' holds the data set made with other settings "
            f'({differing}): choose another folder or remove it.'
        )
    return True


def draw(settings: Settings) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Every image and label with its name, ``<split>/<index>``."""
    width, height = settings.width, settings.height
    for split in SPLITS:
        for index in range(getattr(settings, split)):
            scene = sample_scene(settings.seed, split, index, width / height)
            yield f'{split}/{index:05d}', *render(scene, width, height)


def save_pair(
    folder: Path,
    name: str,
    image: np.ndarray,
    label: np.ndarray,
    image_format: str,
) -> None:
    image_path = folder / 'images' / f'{name}.{image_format}'
    label_path = folder / 'labels' / f'{name}.png'
    for path in (image_path, label_path):
        path.parent.mkdir(parents=True, exist_ok=True)
    # Pillow reads the quality for JPEG and passes over it for PNG.
    Image.fromarray(image).save(image_path, quality=95)
    palette_image = Image.fromarray(label)
    palette_image.putpalette([value for rgb in PALETTE for value in rgb])
    palette_image.save(label_path)


def class_shares(root: Path, split: str) -> np.ndarray:
    """The share of each class in the labels of a split, (K,)."""
    counts = np.zeros(len(CLASSES), np.int64)
    for path in sorted(Path(root, 'labels', split).glob('*.png')):
        with Image.open(path) as label:
            counts += np.bincount(
                np.asarray(label).ravel(), minlength=len(CLASSES)
            )
    return counts / counts.sum()
