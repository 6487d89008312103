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
    """What a server wants to be sent, and of what."""

    dataset: str  # its registered name
    server: str  # the page for the upload
    archive: str  # its suffix is its kind
    images: int  # in the test split
    label_ids: tuple[int, ...]  # the value of each class in a label image
    use_test_split: Callable[[ConfigDict], None]  # of the data set's config
    folder: str = ''  # of the label images inside the archive
    coloured: bool = False  # whether a label image carries the palette


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
        images=1525,
        # The ids of the 19 evaluated classes among Cityscapes' 34.
        label_ids=(7, 8, 11, 12, 13, 17, *range(19, 29), 31, 32, 33),
        use_test_split=_use_cityscapes_test,
    ),
    SubmissionFormat(
        dataset='ADE20KDataset',
        server='http://sceneparsing.csail.mit.edu/',
        archive='ade20k.zip',
        images=3352,
        label_ids=tuple(range(1, 151)),  # 0 is 'other', not evaluated
        use_test_split=_use_ade20k_test,
    ),
    SubmissionFormat(
        dataset='PascalVOCDataset',
        server='http://host.robots.ox.ac.uk:8080/',
        archive='results.tgz',
        images=1456,
        label_ids=tuple(range(21)),
        use_test_split=_use_voc2012_test,
        folder='results/VOC2012/Segmentation/comp6_test_cls',
        coloured=True,
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
