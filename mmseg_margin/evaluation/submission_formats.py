"""What the servers of Cityscapes, ADE20K and VOC2012 want to be sent."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mmengine.config import ConfigDict

from mmseg_margin.errors import SettingError
from mmseg_margin.walks import registered_name


class SubmissionError(SettingError):
    """A submission that cannot be made, and what to do about it."""


@dataclass(frozen=True)
class SubmissionFormat:
    """A server's format.

    Args:
        dataset: Registered name of the data set.
        server: Page where the archive is uploaded.
        archive: Name of the archive; its suffix is its kind.
        folder: Folder of the label images inside the archive.
        label_ids: Value in a label image of each class of the data set.
        images: Number of images in the test split.
        coloured: Whether a label image carries the data set's palette.
        use_test_split: Points a data set's config at the unlabelled images.
    """

    dataset: str
    server: str
    archive: str
    folder: str
    label_ids: tuple[int, ...]
    images: int
    coloured: bool
    use_test_split: Callable[[ConfigDict], None]


def _use_cityscapes_test(dataset: ConfigDict) -> None:
    images = PurePosixPath(dataset.data_prefix.img_path)
    if images.name in ('train', 'val'):
        dataset.data_prefix.img_path = str(images.with_name('test'))


def _use_ade20k_test(dataset: ConfigDict) -> None:
    images = PurePosixPath(dataset.data_prefix.img_path)
    if images.name not in ('training', 'validation'):
        return
    # The test images are a download of their own, unpacked beside the rest.
    beside = PurePosixPath('../release_test/testing')
    inside = images.with_name('testing')
    root = Path(dataset.get('data_root') or '')
    chosen = inside if (root / inside).is_dir() else beside
    dataset.data_prefix.img_path = str(chosen)


def _use_voc2012_test(dataset: ConfigDict) -> None:
    listing = PurePosixPath(dataset.ann_file)
    if listing.name in ('train.txt', 'val.txt', 'trainval.txt'):
        dataset.ann_file = str(listing.with_name('test.txt'))


FORMATS = (
    SubmissionFormat(
        dataset='CityscapesDataset',
        server='https://www.cityscapes-dataset.com/submit/',
        archive='cityscapes.zip',
        folder='',
        # The ids of the 19 evaluated classes among Cityscapes' 34.
        label_ids=(7, 8, 11, 12, 13, 17, *range(19, 29), 31, 32, 33),
        images=1525,
        coloured=False,
        use_test_split=_use_cityscapes_test,
    ),
    SubmissionFormat(
        dataset='ADE20KDataset',
        server='http://sceneparsing.csail.mit.edu/',
        archive='ade20k.zip',
        folder='',
        # 0 is 'other', which is not evaluated.
        label_ids=tuple(range(1, 151)),
        images=3352,
        coloured=False,
        use_test_split=_use_ade20k_test,
    ),
    SubmissionFormat(
        dataset='PascalVOCDataset',
        server='http://host.robots.ox.ac.uk:8080/',
        archive='results.tgz',
        folder='results/VOC2012/Segmentation/comp6_test_cls',
        label_ids=tuple(range(21)),
        images=1456,
        coloured=True,
        use_test_split=_use_voc2012_test,
    ),
)


def find_format(dataset: dict) -> SubmissionFormat:
    """The format for a data set's config, by its registered name."""
    name = registered_name(dataset)
    for known in FORMATS:
        if known.dataset == name:
            return known
    raise SubmissionError(
        f'--format-only knows no server for {name}, only for '
        f'{", ".join(known.dataset for known in FORMATS)}: use --out without '
        'it to keep the predictions of a labelled split.'
    )
