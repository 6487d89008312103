"""Tiny data sets in the folder layouts of the real ones.

Every function takes the folder that the configs call ``data_root``, the number
of images per split and their size as (width, height), and returns the folder.
Every label file holds every class, and void where the real files have it.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

Size = tuple[int, int]
VOID = 255
# Video 1 has an ultrasound probe, video 7 folders without the usual suffix.
ENDOVIS_FOLDERS = {
    1: ('Left_Prograsp_Forceps_labels', 'Other_labels'),
    2: ('Right_Prograsp_Forceps_labels', 'Other_labels'),
    7: ('Left_Bipolar_Forceps', 'Right_Vessel_Sealer'),
}


def write_image(path: Path, size: Size, seed: int) -> None:
    """An RGB image of noise, encoded by the suffix of its path."""
    width, height = size
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(path)


def label_array(size: Size, values: Sequence[int], seed: int) -> np.ndarray:
    """Blocks of random values, (H, W); every value occurs at least once."""
    width, height = size
    rng = np.random.default_rng(seed)
    blocks = rng.choice(values, (-(-height // 4), -(-width // 4)))
    label = blocks.repeat(4, axis=0).repeat(4, axis=1)[:height, :width]
    label.flat[: len(values)] = values
    return label.astype(np.uint8)


def write_label(path: Path, label: np.ndarray, palette: bool = False) -> None:
    """A grey PNG, or one whose palette shows the indices as colours."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(label)
    if palette:
        image.putpalette([(37 * i) % 256 for i in range(3 * 256)])
    image.save(path)


def write_pairs(
    root: Path,
    n: int = 2,
    size: Size = (64, 32),
    *,
    image: str,
    label: str,
    splits: Sequence[str],
    values: Sequence[int],
    palette: bool = False,
) -> Path:
    """Write n images and labels of each split, each with its own content.

    Their paths are patterns with ``{split}``, the number ``{i}`` and, where
    the layout has cities, ``{city}``.
    """
    numbers = [(split, i) for split in splits for i in range(n)]
    for seed, (split, i) in enumerate(numbers):
        name = {'split': split, 'i': i, 'city': ('aachen', 'zurich')[i % 2]}
        write_image(root / image.format_map(name), size, seed)
        content = label_array(size, values, seed)
        write_label(root / label.format_map(name), content, palette)
    return root


# ADEChallengeData2016: 0 is void, the classes are 1 to 150.
make_ade20k = partial(
    write_pairs,
    image='images/{split}/ADE_{split}_{i:08d}.jpg',
    label='annotations/{split}/ADE_{split}_{i:08d}.png',
    splits=('training', 'validation'),
    values=range(151),
)
# Four classes in the layout of the data sets defined by a config only.
make_folders = partial(
    write_pairs,
    image='images/{split}/{i}.jpg',
    label='labels/{split}/{i}.png',
    splits=('train', 'val'),
    values=range(4),
)
# COCO-Stuff 10K as converted by upstream: 0 is void, classes 1-171. Both
# splits were drawn from COCO's train2014.
make_coco_stuff10k = partial(
    write_pairs,
    image='images/{split}/COCO_train2014_{i:012d}.jpg',
    label='annotations/{split}/COCO_train2014_{i:012d}_labelTrainIds.png',
    splits=('train2014', 'test2014'),
    values=range(172),
)
# BDD100K's 10k images with their semantic masks of train ids.
make_bdd100k = partial(
    write_pairs,
    image='images/10k/{split}/0004a4c0-{i:08x}.jpg',
    label='labels/sem_seg/masks/{split}/0004a4c0-{i:08x}.png',
    splits=('train', 'val'),
    values=[*range(19), VOID],
)
# Mapillary Vistas v1.2: palette labels 0-65, 65 is unlabelled.
make_mapillary = partial(
    write_pairs,
    image='{split}/images/{i:022x}.jpg',
    label='{split}/v1.2/labels/{i:022x}.png',
    splits=('training', 'validation'),
    values=range(66),
    palette=True,
)
# CamVid as SegNet distributes it: grey labels 0-10, 11 is void.
make_camvid_segnet = partial(
    write_pairs,
    image='{split}/0001TP_{i:06d}.png',
    label='{split}annot/0001TP_{i:06d}.png',
    splits=('train', 'val', 'test'),
    values=range(12),
)


def make_cityscapes(
    root: Path, n: int = 2, size: Size = (64, 32), coarse: bool = False
) -> Path:
    """Fine train and val labels, optionally the coarse ``train_extra``."""
    kinds = {'gtFine': ('train', 'val')}
    if coarse:
        kinds['gtCoarse'] = ('train_extra',)
    frame = '{split}/{city}/{city}_{i:06d}_000019'
    image, values = f'leftImg8bit/{frame}_leftImg8bit.png', [*range(19), VOID]
    write = partial(write_pairs, root, n, size, image=image, values=values)
    for kind, splits in kinds.items():
        label = f'{kind}/{frame}_{kind}_labelTrainIds.png'
        write(label=label, splits=splits)
    return root


def make_voc2012(root: Path, n: int = 2, size: Size = (64, 32)) -> Path:
    """VOC2012 with palette labels, and the extra ones in a second folder."""
    splits = {
        'train': ('2007', 'SegmentationClass', True),
        'val': ('2009', 'SegmentationClass', True),
        'aug': ('2008', 'SegmentationClassAug', False),
    }
    write = partial(write_pairs, root, n, size, values=[*range(21), VOID])
    for split, (year, annotation, palette) in splits.items():
        image = f'JPEGImages/{year}_{{i:06d}}.jpg'
        label = f'{annotation}/{year}_{{i:06d}}.png'
        write(image=image, label=label, splits=(split,), palette=palette)
        listing = root / f'ImageSets/Segmentation/{split}.txt'
        listing.parent.mkdir(parents=True, exist_ok=True)
        names = (f'{year}_{i:06d}\n' for i in range(n))
        listing.write_text(''.join(names))
    return root


def make_endovis_challenge(
    root: Path,
    frames: Sequence[int] = (0, 149, 150, 174, 175, 224),
    size: Size = (64, 32),
) -> Path:
    """EndoVis 2017 as downloaded: one mask folder for each instrument.

    Shaft, wrist and claspers (10, 20, 30) fill the left half in the first
    folder; the last folder of videos 1 and 2 holds a probe (40) in the right
    half, and that of video 7 is stored as RGB.
    """
    width, height = size
    for video, folders in ENDOVIS_FOLDERS.items():
        videos = root / f'instrument_dataset_{video}'
        for frame in frames:
            name = f'frame{frame:03d}.png'
            write_image(videos / 'left_frames' / name, size, frame)
            parts = np.zeros((height, width), np.uint8)
            parts[:, : width // 2] = label_array(
                (width // 2, height), (0, 10, 20, 30), frame
            )
            probe = np.zeros_like(parts)
            probe[height // 2 :, width // 2 :] = 40 if video < 7 else 10
            if video == 7:
                probe = probe[..., None].repeat(3, axis=2)
            truth = videos / 'ground_truth'
            write_label(truth / folders[0] / name, parts)
            write_label(truth / folders[1] / name, probe)
    return root
