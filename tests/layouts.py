"""Tiny data sets in the true folder layout of the real ones.

Every maker takes the folder that the configs call ``data_root``, the number
of images per split and their size as (width, height), and returns the folder.
Every label file holds every class, and void where the real files have it.
"""

from collections.abc import Iterable, Sequence
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
    pairs: Iterable[tuple[Path, Path]],
    size: Size,
    values: Sequence[int],
    palette: bool = False,
) -> None:
    """Write each (image, label) pair, every one with its own content."""
    for seed, (image, label) in enumerate(pairs):
        write_image(image, size, seed)
        write_label(label, label_array(size, values, seed), palette)


def make_cityscapes(
    root: Path, n: int = 2, size: Size = (64, 32), coarse: bool = False
) -> Path:
    """Fine train and val, and the coarse ``train_extra`` when asked for."""
    splits = {'train': 'gtFine', 'val': 'gtFine'}
    if coarse:
        splits['train_extra'] = 'gtCoarse'
    pairs = []
    for split, annotation in splits.items():
        for i in range(n):
            city = ('aachen', 'zurich')[i % 2]
            frame = f'{split}/{city}/{city}_{i:06d}_000019'
            pairs.append(
                (
                    root / f'leftImg8bit/{frame}_leftImg8bit.png',
                    root / f'{annotation}/{frame}_{annotation}'
                    '_labelTrainIds.png',
                )
            )
    write_pairs(pairs, size, [*range(19), VOID])
    return root


def make_ade20k(root: Path, n: int = 2, size: Size = (64, 32)) -> Path:
    """ADEChallengeData2016: 0 is void, the classes are 1 to 150."""
    pairs = [
        (
            root / f'images/{split}/ADE_{prefix}_{i:08d}.jpg',
            root / f'annotations/{split}/ADE_{prefix}_{i:08d}.png',
        )
        for split, prefix in (('training', 'train'), ('validation', 'val'))
        for i in range(1, n + 1)
    ]
    write_pairs(pairs, size, range(151))
    return root


def make_folders(root: Path, n: int = 2, size: Size = (64, 32)) -> Path:
    """Four classes in the layout that recipes by config alone have."""
    pairs = [
        (root / f'images/{split}/{i}.jpg', root / f'labels/{split}/{i}.png')
        for split in ('train', 'val')
        for i in range(n)
    ]
    write_pairs(pairs, size, range(4))
    return root


def make_voc2012(root: Path, n: int = 2, size: Size = (64, 32)) -> Path:
    """VOC2012 with palette labels, and the extra ones in a second folder."""
    splits = {
        'train': ('2007', 'SegmentationClass', True),
        'val': ('2009', 'SegmentationClass', True),
        'aug': ('2008', 'SegmentationClassAug', False),
    }
    for split, (year, annotation, palette) in splits.items():
        names = [f'{year}_{i:06d}' for i in range(1, n + 1)]
        pairs = [
            (
                root / f'JPEGImages/{name}.jpg',
                root / f'{annotation}/{name}.png',
            )
            for name in names
        ]
        write_pairs(pairs, size, [*range(21), VOID], palette)
        listing = root / f'ImageSets/Segmentation/{split}.txt'
        listing.parent.mkdir(parents=True, exist_ok=True)
        listing.write_text('\n'.join(names) + '\n')
    return root


def make_coco_stuff10k(root: Path, n: int = 2, size: Size = (64, 32)) -> Path:
    """COCO-Stuff 10K as converted by upstream: 0 is void, classes 1-171."""
    pairs = []
    for start, split in ((0, 'train2014'), (500, 'test2014')):
        for i in range(start, start + n):
            # Both splits were drawn from COCO's train2014.
            name = f'{split}/COCO_train2014_{i:012d}'
            pairs.append(
                (
                    root / f'images/{name}.jpg',
                    root / f'annotations/{name}_labelTrainIds.png',
                )
            )
    write_pairs(pairs, size, range(172))
    return root


def make_bdd100k(root: Path, n: int = 2, size: Size = (64, 32)) -> Path:
    """BDD100K's 10k images with their semantic masks of train ids."""
    pairs = [
        (
            root / f'images/10k/{split}/0004a4c0-{i:08x}.jpg',
            root / f'labels/sem_seg/masks/{split}/0004a4c0-{i:08x}.png',
        )
        for split in ('train', 'val')
        for i in range(n)
    ]
    write_pairs(pairs, size, [*range(19), VOID])
    return root


def make_mapillary(root: Path, n: int = 2, size: Size = (64, 32)) -> Path:
    """Mapillary Vistas v1.2: palette labels 0-65, 65 is unlabelled."""
    pairs = [
        (
            root / f'{split}/images/{i:022x}.jpg',
            root / f'{split}/v1.2/labels/{i:022x}.png',
        )
        for split in ('training', 'validation')
        for i in range(n)
    ]
    write_pairs(pairs, size, range(66), palette=True)
    return root


def make_camvid_segnet(root: Path, n: int = 2, size: Size = (64, 32)) -> Path:
    """CamVid as SegNet distributes it: grey labels 0-10, 11 is void."""
    pairs = [
        (
            root / f'{split}/0001TP_{i:06d}.png',
            root / f'{split}annot/0001TP_{i:06d}.png',
        )
        for split in ('train', 'val', 'test')
        for i in range(n)
    ]
    write_pairs(pairs, size, range(12))
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
