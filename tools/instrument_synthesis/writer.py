"""Writes the data set to disk, whole or not at all."""

import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.progress import track

from mmseg_margin.errors import DataSetError, SettingError

from .scene import SPLITS, draw_image

SETTINGS_FILE = 'settings.json'


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
    # Raised whenever the same settings give other pictures than before.
    generator_version: int = 2

    def __post_init__(self) -> None:
        size = self.width, self.height
        counts = self.train, self.val, self.test
        if min(size) < 32 or min(counts) < 1 or self.seed < 0:
            raise SettingError(
                f'size {size}, counts {counts}, seed {self.seed}: use at '
                'least 32 pixels on each side, 1 image in each split and 0 '
                'as the seed.'
            )


def write_dataset(root: Path, settings: Settings) -> bool:
    """Make the data set in ``root``; False if it was there already.

    It is written beside ``root`` and renamed when complete, so ``root`` never
    holds half of it.
    """
    if is_made(root, settings):
        return False
    root.parent.mkdir(parents=True, exist_ok=True)
    names = [(s, i) for s in SPLITS for i in range(getattr(settings, s))]
    with tempfile.TemporaryDirectory('', f'.{root.name}-', root.parent) as new:
        folder = Path(new, root.name)
        console = Console(stderr=True)
        for split, index in track(names, 'Images', console=console):
            write_pair(folder, settings, split, index)
        text = json.dumps(asdict(settings), indent=2)
        (folder / SETTINGS_FILE).write_text(text + '\n', 'utf-8')
        folder.rename(root)
    return True


def is_made(root: Path, settings: Settings) -> bool:
    """Whether ``root`` holds this data set; anything else is an error."""
    if not root.exists() or (root.is_dir() and not any(root.iterdir())):
        return False
    record, wanted = root / SETTINGS_FILE, asdict(settings)
    found = json.loads(record.read_text('utf-8')) if record.is_file() else {}
    if found == wanted:
        return True
    differences = ', '.join(
        f'{key} {found.get(key)} instead of {wanted.get(key)}'
        for key in sorted({*found, *wanted})
        if found.get(key) != wanted.get(key)
    )
    problem = f'was made with other settings ({differences})'
    raise DataSetError(
        f"'{root}' {problem if found else 'was not made by this generator'}: "
        'choose another folder or remove it.'
    )


def write_pair(
    folder: Path, settings: Settings, split: str, index: int
) -> None:
    # Not above, because it imports mmseg, and --help needs only Settings.
    from mmseg_margin.registration import datasets

    picture, label = draw_image(
        settings.seed, split, index, settings.width, settings.height
    )
    image_path = folder / f'images/{split}/{index:05d}.{settings.image_format}'
    label_path = folder / f'labels/{split}/{index:05d}.png'
    for path in (image_path, label_path):
        path.parent.mkdir(parents=True, exist_ok=True)
    # Pillow reads the quality for JPEG and passes over it for PNG.
    Image.fromarray(picture).save(image_path, quality=95)
    palette_image = Image.fromarray(label)
    palette_image.putpalette(sum(datasets.PART_COLOURS.values(), ()))
    palette_image.save(label_path)
