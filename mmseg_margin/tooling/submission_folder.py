"""The folder of a submission, in the format that its server accepts.

A submission that was interrupted can be continued, and files that do not
belong to it are never changed.
"""

import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import numpy as np
from filelock import FileLock, Timeout
from mmengine.config import ConfigDict
from mmengine.fileio import dump, load
from PIL import Image

from mmseg_margin.atomic_write import atomic_write
from mmseg_margin.config_tools import registered_name
from mmseg_margin.errors import SettingError

MARKER = 'submission.json'
# Workers of a killed process notice its end, and free its lock, after 5 s.
LOCK_SECONDS = 6.0


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


class SubmissionFolder:
    """The label images of one submission, a marker file and the archive."""

    def __init__(self, root: str | Path, form: SubmissionFormat) -> None:
        self.root = Path(root)
        self.form = form
        # One per process, so that a process can claim its folder again.
        self.lock = FileLock(
            self.root.absolute() / f'.{MARKER}.lock', is_singleton=True
        )

    def claim(self, identity: dict[str, str]) -> None:
        """Create the folder, or continue it if ``identity`` is the same.

        No other process can claim it until the lock is released or this
        process ends.
        """
        self._refuse_foreign_files()
        self.root.mkdir(parents=True, exist_ok=True)
        try:
            self.lock.acquire(timeout=LOCK_SECONDS)
        except Timeout:
            raise SubmissionError(
                f'--out {self.root} is in use by another process, and nothing '
                'was touched: wait for its end, or choose another folder.'
            ) from None
        marker = self.root / MARKER
        if not marker.is_file():
            self._refuse_foreign_files()
            with atomic_write(marker) as part:
                dump(identity, part, file_format='json', indent=2)
            return
        found = load(marker)
        differing = [k for k in identity if found.get(k) != identity[k]]
        if differing:
            raise SubmissionError(
                f'--out {self.root} contains the predictions of another run '
                f'(different: {", ".join(differing)}), and nothing was '
                'touched: choose another folder.'
            )

    def _refuse_foreign_files(self) -> None:
        if not self.root.exists() or (self.root / MARKER).is_file():
            return
        # The lock, and a draft of the marker that a kill has left.
        ours = f'.{MARKER}.'
        if not self.root.is_dir() or not all(
            path.name.startswith(ours) for path in self.root.iterdir()
        ):
            raise SubmissionError(
                f'--out {self.root} contains files that are not a submission '
                'of this tool, and nothing was touched: choose a new or empty '
                'folder.'
            )

    def label_path(self, image: str) -> Path:
        """The path of the label image of an image."""
        return self.root / self.form.folder / label_name(image)

    def missing(self, images: Sequence[str]) -> list[int]:
        """Indices of the images that have no label image yet."""
        paths = map(self.label_path, images)
        return [i for i, path in enumerate(paths) if not path.exists()]

    def write(
        self,
        image: str,
        prediction: np.ndarray,
        palette: Sequence[Sequence[int]],
    ) -> None:
        """Write the label image of a prediction of class indices, (H, W)."""
        label_ids = np.array(self.form.label_ids, dtype=np.uint8)
        label = Image.fromarray(label_ids[prediction])
        if self.form.coloured:
            label.putpalette(np.array(palette, dtype=np.uint8).tobytes())
        path = self.label_path(image)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as part:
            label.save(part, format='png')

    def check(self, image: str) -> None:
        """Raise if the server would refuse the label image of an image."""
        path = self.label_path(image)
        with Image.open(image) as original:
            size = original.size
        try:
            with Image.open(path) as label:
                found, values = label.size, np.array(label)
        except (OSError, SyntaxError) as error:
            raise SubmissionError(
                f'{path} cannot be read ({error}): delete it and run again.'
            ) from error
        invalid = sorted(
            {*np.unique(values).tolist()} - {*self.form.label_ids}
        )
        if found != size or values.ndim != 2 or invalid:
            raise SubmissionError(
                f'{path} is not valid (size {found} for an image of {size}, '
                f'invalid values {invalid}): delete it and run again.'
            )

    def pack(self, images: Sequence[str]) -> Path:
        """Write the archive, with one label image for each image."""
        archive = self.root / self.form.archive
        paths = [self.label_path(image) for image in images]
        with atomic_write(archive) as part:
            if archive.suffix == '.zip':  # stored, because PNGs are compressed
                with ZipFile(part, 'w') as zipped:
                    for path in paths:
                        zipped.write(path, path.relative_to(self.root))
            else:
                with tarfile.open(part, 'w:gz') as tar:
                    for path in paths:
                        tar.add(path, path.relative_to(self.root))
        return archive


def label_name(image: str) -> str:
    """The file name of an image's label image in the archive."""
    name = Path(image).stem
    if '\\' in name:
        raise SubmissionError(
            f'The name of {image} contains a backslash, which leads out of '
            'the folder where an archive is unpacked on Windows: rename it.'
        )
    return f'{name}.png'
