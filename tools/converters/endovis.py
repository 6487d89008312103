"""Convert the training set of EndoVis 2017 to instrument parts.

SOURCE holds instrument_dataset_1 to instrument_dataset_8, TARGET becomes the
data_root of EndoVisPartsDataset: 1,200 / 200 / 400 frames, as in the paper.
"""

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from mmseg_margin.errors import DataSetError, MissingFileError
from mmseg_margin.tooling.cli import report_errors

# The challenge's parts_mapping.json: background, shaft, wrist, claspers,
# probe. Anything else is void.
PART_VALUES = (0, 10, 20, 30, 40)
PART_OF_VALUE = np.full(256, 255, np.uint8)
PART_OF_VALUE[list(PART_VALUES)] = range(len(PART_VALUES))
# The paper's sequential split of the 225 frames of each video.
SPLITS = {
    'train': range(150),
    'val': range(150, 175),
    'test': range(175, 225),
}


def split_of_frame(frame: int) -> str:
    """The split that holds a frame of any video."""
    for split, frames in SPLITS.items():
        if frame in frames:
            return split
    raise DataSetError(
        f'frame {frame} is in no split: the videos of the training set have '
        'frames 0 to 224, so pass the folder of that set alone.'
    )


def merge_part_masks(masks: Sequence[np.ndarray]) -> np.ndarray:
    """Part index of each pixel, (H, W), from one mask per instrument.

    Where instruments overlap the part of the larger value wins, so that the
    result does not depend on the order of the masks.
    """
    # A few masks are stored as RGB with three equal channels.
    grey = [mask[..., 0] if mask.ndim == 3 else mask for mask in masks]
    return np.maximum.reduce([PART_OF_VALUE[mask] for mask in grey])


def convert_endovis(source: Path, target: Path) -> None:
    """Convert the challenge's training videos for EndoVisPartsDataset."""
    frames = sorted(source.glob('instrument_dataset_*/left_frames/*.png'))
    if not frames:
        raise MissingFileError(
            f"There is no instrument_dataset_*/left_frames/*.png in '{source}'"
            ': pass the folder that holds the videos of the training set.'
        )
    for frame in frames:
        video = frame.parent.parent
        split = split_of_frame(int(frame.stem.removeprefix('frame')))
        name = f'{video.name}_{frame.name}'
        for folder in ('images', 'labels'):
            (target / folder / split).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(frame, target / 'images' / split / name)
        label = _read_parts(video / 'ground_truth', frame.name)
        label.save(target / 'labels' / split / name)


def _read_parts(truth: Path, name: str) -> Image.Image:
    """The merged label of a frame as a palette image."""
    from mmseg_margin.datasets import PART_COLOURS

    paths = sorted(truth.glob(f'*/{name}'))
    if not paths:
        raise MissingFileError(
            f"There is no mask {name} in '{truth}': download the ground truth "
            'of this video.'
        )
    masks = [np.asarray(Image.open(path)) for path in paths]
    label = Image.fromarray(merge_part_masks(masks))
    label.putpalette(sum(PART_COLOURS.values(), ()))
    return label


@report_errors
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('source', type=Path, metavar='SOURCE')
    parser.add_argument('target', type=Path, metavar='TARGET')
    args = parser.parse_args(argv)
    convert_endovis(args.source, args.target)


if __name__ == '__main__':
    main()
