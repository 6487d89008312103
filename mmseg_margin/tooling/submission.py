"""``--format-only``: from a test config to an archive ready for upload.

A submission that was interrupted can be continued, and files that do not
belong to it are never changed.
"""

import hashlib
import json
import os
import tarfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import ZipFile

import numpy as np
from filelock import FileLock, Timeout
from mmengine.config import Config, ConfigDict
from mmengine.dist import broadcast_object_list, is_main_process
from mmengine.evaluator import BaseMetric
from mmseg.registry import DATASETS, METRICS
from PIL import Image

from mmseg_margin.atomic_write import atomic_write, atomic_write_text
from mmseg_margin.config_tools import registered_name
from mmseg_margin.errors import SettingError
from mmseg_margin.evaluation.tta import without_annotations

from .launch import build_runner

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


def make_submission(
    cfg: Config, output_dir: str, is_verbose: bool = True
) -> None:
    """Predict the test split of ``cfg`` and pack it for the server.

    ``cfg`` has ``load_from`` and the test-time augmentation set; the folder
    is new or empty, or one to continue.
    """
    dataset = cfg.test_dataloader.dataset
    form = find_format(dataset)
    form.use_test_split(dataset)
    dataset.data_prefix.pop('seg_map_path', None)
    dataset.pop('indices', None)
    dataset.pipeline = without_annotations(dataset.pipeline)
    folder = SubmissionFolder(output_dir, form)
    try:
        images, missing = _claim(folder, cfg)
        if missing:
            dataset.indices = missing
            cfg.test_evaluator = {
                'type': 'SubmissionMetric',
                'output_dir': str(output_dir),
                'dataset': form.dataset,
            }
            build_runner(cfg, is_verbose).test()
        if is_main_process():
            for image in images:
                folder.check(image)
            archive = folder.pack(images)
            size = f'{archive} ({archive.stat().st_size / 2**20:.1f} MiB)'
            print(
                f'{len(images)} label images ({len(missing)} new) in '
                f'{folder.root}, all with valid size and values.'
            )
            print(
                f'Upload {size} to {form.server}'
                if len(images) == form.images
                else f'Warning: {size} is not complete: the test split of '
                f'{form.dataset} has {form.images:,} images, not '
                f'{len(images):,}. Complete the download and run the same '
                'command with another --out.'
            )
    finally:
        folder.lock.release()


def _claim(
    folder: 'SubmissionFolder', cfg: Config
) -> tuple[list[str], list[int]]:
    """All images and the indices of the missing ones, on every rank."""
    outcome: list[Any] = [None]
    if is_main_process():
        try:
            images = list_images(cfg.test_dataloader.dataset)
            folder.claim(run_identity(cfg, folder.form.dataset, images))
            outcome = [(images, folder.missing(images))]
        except (SubmissionError, OSError) as error:
            outcome = [error]
    # An error too, so that every rank ends with its sentence.
    broadcast_object_list(outcome)
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


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
            raise self._refusal(
                'is in use by another process (wait for its end)'
            ) from None
        marker = self.root / MARKER
        if not marker.is_file():
            self._refuse_foreign_files()
            atomic_write_text(marker, json.dumps(identity, indent=2))
        found = json.loads(marker.read_text('utf-8'))
        other = [key for key in identity if found.get(key) != identity[key]]
        if other:
            raise self._refusal(
                'contains the predictions of another run (different: '
                f'{", ".join(other)})'
            )

    def _refuse_foreign_files(self) -> None:
        if not self.root.exists() or (self.root / MARKER).is_file():
            return
        # The lock, and a draft of the marker that a kill has left.
        ours = f'.{MARKER}.'
        if not self.root.is_dir() or not all(
            path.name.startswith(ours) for path in self.root.iterdir()
        ):
            raise self._refusal(
                'contains files that are not a submission of this tool'
            )

    def _refusal(self, reason: str) -> SubmissionError:
        return SubmissionError(
            f'--out {self.root} {reason}, and nothing was touched: choose a '
            'new or empty folder.'
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
            shape = original.size[::-1]
        try:
            values = np.array(Image.open(path))
        except (OSError, SyntaxError):  # cut off, or not a PNG
            values = np.empty(0)
        if (
            values.shape != shape
            or not np.isin(values, self.form.label_ids).all()
        ):
            raise SubmissionError(
                f'{path} is not valid: it has to be a whole image of (height, '
                f'width) {shape} with the ids of classes. Delete it and run '
                'again.'
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


@METRICS.register_module()
class SubmissionMetric(BaseMetric):
    """Writes every prediction in the format of the data set's server.

    Args:
        output_dir: Folder of the submission.
        dataset: Registered name of the data set, which decides the format.
    """

    default_prefix = 'submission'

    def __init__(self, output_dir: str, dataset: str, **kwargs) -> None:
        super().__init__(**kwargs)
        form = find_format({'type': dataset})
        self.folder = SubmissionFolder(output_dir, form)

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        meta = self.dataset_meta or {}
        found = len(meta.get('classes', ()))
        expected = len(self.folder.form.label_ids)
        if found != expected:
            raise SubmissionError(
                f'{self.folder.form.dataset} is submitted with its {expected} '
                f'classes, but the config has {found}: remove metainfo from '
                'the data set.'
            )
        for sample in data_samples:
            prediction = sample['pred_sem_seg']['data'].squeeze(0)
            self.folder.write(
                sample['img_path'], prediction.cpu().numpy(), meta['palette']
            )
            self.results.append(sample['img_path'])

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Number of label images written in this run."""
        return {'written': len(set(results))}


def label_name(image: str) -> str:
    """The file name of an image's label image in the archive."""
    name = Path(image).stem
    if '\\' in name:
        raise SubmissionError(
            f'The name of {image} contains a backslash, which leads out of '
            'the folder where an archive is unpacked on Windows: rename it.'
        )
    return f'{name}.png'


def list_images(dataset: ConfigDict) -> list[str]:
    """Paths of the images of an unlabelled split, in the data set's order."""
    root = Path(dataset.get('data_root') or '')
    source = root / dataset.data_prefix.img_path
    listing = root / dataset.get('ann_file', '')
    absent = [str(path) for path in (source, listing) if not path.exists()]
    if absent:
        raise SubmissionError(
            f'The test split is not complete, {" and ".join(absent)} does not '
            'exist: download the test images of the data set.'
        )
    built = DATASETS.build(dict(dataset, pipeline=[], serialize_data=False))
    images = [built.get_data_info(i)['img_path'] for i in range(len(built))]
    names = Counter(map(label_name, images))
    repeated = [name for name, count in names.items() if count > 1]
    if not images or repeated:
        raise SubmissionError(
            f'The test split in {source} has {len(images)} images and '
            f'{len(repeated)} repeated names {repeated[:3]}, but the server '
            'expects every image once: check data_root and data_prefix.'
        )
    return images


def run_identity(
    cfg: Config, dataset: str, images: Sequence[str]
) -> dict[str, str]:
    """What determines the predictions, so that runs are never mixed."""
    weights = str(cfg.load_from)
    if os.path.isfile(weights):
        weights = hashlib.sha256(Path(weights).read_bytes()).hexdigest()
    files = []
    for image in images:
        stat = os.stat(image)
        files.append((os.path.realpath(image), stat.st_size, stat.st_mtime_ns))
    return {
        'dataset': dataset,
        'images': _digest(files),
        'checkpoint': weights,
        'pipeline': _digest(cfg.test_dataloader.dataset.pipeline),
        'model': _digest(cfg.model),
    }


def _digest(settings: object) -> str:
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
