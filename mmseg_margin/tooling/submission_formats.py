"""The formats that the servers of Cityscapes, ADE20K and VOC2012 accept."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mmengine.config import ConfigDict

from mmseg_margin.config_tools import registered_name
from mmseg_margin.errors import SettingError


class SubmissionError(SettingError):
    """A submission that cannot be made, with the remedy."""


@dataclass(frozen=True)
class SubmissionFormat:
    """A server's archive, label images and test split."""

    dataset: str  # registered name
    server: str  # page for the upload
    archive: str  # file name; .zip or .tgz
    images: int  # number of images in the test split
    label_ids: tuple[int, ...]  # value of each class in a label image
    labelled: tuple[str, ...]  # splits that are replaced by the test split
    test: str  # the test split
    is_list: bool = False  # whether a split is a list of names, not a folder
    download: str = ''  # folder of a test split that is a separate download
    folder: str = ''  # folder of the label images inside the archive
    coloured: bool = False  # whether a label image contains the palette

    def use_test_split(self, dataset: ConfigDict) -> None:
        """Switch a data set's config from a labelled split to the test."""
        place = dataset if self.is_list else dataset.data_prefix
        key = 'ann_file' if self.is_list else 'img_path'
        split = PurePosixPath(place[key])
        if split.name in self.labelled:
            test = str(split.with_name(self.test))
            root = Path(dataset.get('data_root') or '')
            is_there = not self.download or (root / test).is_dir()
            place[key] = test if is_there else self.download


FORMATS = (
    SubmissionFormat(
        dataset='CityscapesDataset',
        server='https://www.cityscapes-dataset.com/submit/',
        archive='cityscapes.zip',
        images=1525,
        # The ids of the 19 evaluated classes among Cityscapes' 34.
        label_ids=(7, 8, 11, 12, 13, 17, *range(19, 29), 31, 32, 33),
        labelled=('train', 'val'),
        test='test',
    ),
    SubmissionFormat(
        dataset='ADE20KDataset',
        server='http://sceneparsing.csail.mit.edu/',
        archive='ade20k.zip',
        images=3352,
        label_ids=tuple(range(1, 151)),  # 0 is 'other', not evaluated
        labelled=('training', 'validation'),
        test='testing',
        download='../release_test/testing',
    ),
    SubmissionFormat(
        dataset='PascalVOCDataset',
        server='http://host.robots.ox.ac.uk:8080/',
        archive='results.tgz',
        images=1456,
        label_ids=tuple(range(21)),
        labelled=('train.txt', 'val.txt', 'trainval.txt'),
        test='test.txt',
        is_list=True,
        folder='results/VOC2012/Segmentation/comp6_test_cls',
        coloured=True,
    ),
)


def find_format(dataset: dict) -> SubmissionFormat:
    """The format for a data set's config, by its registered name."""
    formats = {known.dataset: known for known in FORMATS}
    name = registered_name(dataset)
    if name not in formats:
        raise SubmissionError(
            f'--format-only knows no server for {name}, only for '
            f'{", ".join(formats)}: use --out without --format-only to keep '
            'the predictions of a labelled split.'
        )
    return formats[name]
