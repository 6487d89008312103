"""Submissions to the servers of Cityscapes, ADE20K and Pascal VOC.

The unlabelled test split is predicted into a new folder; when all label images
are valid they are packed for the upload.
"""

import os
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import ZipFile

import numpy as np
from mmengine.config import Config, ConfigDict
from mmengine.dist import barrier, is_main_process
from mmengine.evaluator import BaseMetric
from mmseg.registry import DATASETS, METRICS
from numpy.typing import NDArray
from PIL import Image

from mmseg_margin.atomic_write import atomic_write
from mmseg_margin.config_tools import registered_name
from mmseg_margin.errors import SettingError
from mmseg_margin.evaluation.tta import loads_annotations

from .launch import build_runner


class SubmissionError(SettingError):
    """A submission that cannot be made, with the remedy."""


@dataclass(frozen=True)
class SubmissionFormat:
    """A server's archive, label images and test split."""

    dataset: str  # registered name
    server: str  # page for the upload
    archive: str  # file name; .zip or .tgz
    images: int  # number of images in the test split
    ids: tuple[int, ...]  # label value of each of the data set's own classes
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

    @property
    def metainfo(self) -> dict[str, Any]:
        """Classes and palette of the server, in the order of ``ids``."""
        return DATASETS.get(self.dataset).METAINFO

    def label_ids(self, classes: Sequence[str]) -> NDArray[np.uint8]:
        """The label values of classes, looked up by name."""
        ids = dict(zip(self.metainfo['classes'], self.ids, strict=True))
        unknown = [name for name in classes if name not in ids]
        if unknown:
            raise SubmissionError(
                f'The server of {self.dataset} knows no class '
                f'{", ".join(unknown)}: name the classes in metainfo as in '
                'the original data set.'
            )
        return np.array([ids[name] for name in classes], dtype=np.uint8)


FORMATS = (
    SubmissionFormat(
        dataset='CityscapesDataset',
        server='https://www.cityscapes-dataset.com/submit/',
        archive='cityscapes.zip',
        images=1525,
        # The ids of the 19 evaluated classes among Cityscapes' 34.
        ids=(7, 8, 11, 12, 13, 17, *range(19, 29), 31, 32, 33),
        labelled=('train', 'val'),
        test='test',
    ),
    SubmissionFormat(
        dataset='ADE20KDataset',
        server='http://sceneparsing.csail.mit.edu/',
        archive='ade20k.zip',
        images=3352,
        ids=tuple(range(1, 151)),  # 0 is 'other', not evaluated
        labelled=('training', 'validation'),
        test='testing',
        download='../release_test/testing',
    ),
    SubmissionFormat(
        dataset='PascalVOCDataset',
        server='http://host.robots.ox.ac.uk:8080/',
        archive='results.tgz',
        images=1456,
        ids=tuple(range(21)),
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


def use_test_images(cfg: Config) -> None:
    """Let a config test the unlabelled split, before views are added."""
    dataset = cfg.test_dataloader.dataset
    find_format(dataset).use_test_split(dataset)
    dataset.data_prefix.pop('seg_map_path', None)
    dataset.pop('indices', None)
    dataset.pipeline = [
        step for step in dataset.pipeline if not loads_annotations(step)
    ]
    for step in cfg.get('tta_pipeline') or ():
        if 'transforms' in step:
            step.transforms = [
                views
                for views in step.transforms
                if not any(map(loads_annotations, views))
            ]


def make_submission(
    cfg: Config, output_dir: str, is_verbose: bool = False
) -> None:
    """Predict the images of ``cfg`` and pack the labels for the server.

    Args:
        cfg: A config after :func:`use_test_images`, with ``load_from`` and
            the test-time augmentation set.
        output_dir: A new or empty folder.
        is_verbose: Whether the console shows the whole log.
    """
    form = find_format(cfg.test_dataloader.dataset)
    folder = Path(output_dir)
    cfg.test_evaluator = {
        'type': 'SubmissionMetric',
        'output_dir': output_dir,
        'dataset': form.dataset,
    }
    runner = build_runner(cfg, is_verbose)
    if folder.exists() and not (folder.is_dir() and not os.listdir(folder)):
        raise SubmissionError(
            f'--out {folder} is not an empty folder, and nothing in it was '
            'changed: choose a new or empty folder.'
        )
    barrier()  # until every rank has found the folder empty
    runner.test()
    if not is_main_process():
        return
    dataset = runner.test_dataloader.dataset
    images = [
        dataset.get_data_info(i)['img_path'] for i in range(len(dataset))
    ]
    labels = check_submission(images, folder, form)
    archive = pack(labels, folder, form)
    size = f'{archive} ({archive.stat().st_size / 2**20:.1f} MiB)'
    print(f'{len(labels)} label images, all with valid size and values.')
    print(
        f'Upload {size} to {form.server}'
        if len(labels) == form.images
        else f'Warning: {size} is not complete: the test split of '
        f'{form.dataset} has {form.images:,} images, not {len(labels):,}. '
        'Complete the download and run the same command with another --out.'
    )


def label_path(image: str, folder: Path, form: SubmissionFormat) -> Path:
    """The path of the label image of an image."""
    return folder / form.folder / f'{Path(image).stem}.png'


@METRICS.register_module()
class SubmissionMetric(BaseMetric):
    """Writes every prediction in the format of the data set's server.

    Args:
        output_dir: Folder of the submission.
        dataset: Registered name of the data set, which decides the format.
    """

    default_prefix = 'submission'

    def __init__(self, output_dir: str, dataset: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.folder = Path(output_dir)
        self.form = find_format({'type': dataset})

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        ids = self.form.label_ids((self.dataset_meta or {})['classes'])
        for sample in data_samples:
            prediction = sample['pred_sem_seg']['data'].squeeze(0)
            label = Image.fromarray(ids[prediction.cpu().numpy()])
            if self.form.coloured:
                palette = np.array(self.form.metainfo['palette'], np.uint8)
                label.putpalette(palette.tobytes())
            path = label_path(sample['img_path'], self.folder, self.form)
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as draft:
                label.save(draft, format='png')
            self.results.append(sample['img_path'])

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Number of label images."""
        return {'written': len(set(results))}


def check_submission(
    images: Sequence[str], folder: Path, form: SubmissionFormat
) -> list[Path]:
    """The label image of each image; an error if the server would refuse."""
    labels = [label_path(image, folder, form) for image in images]
    if not labels or len(set(labels)) < len(labels):
        raise SubmissionError(
            f'The test split has {len(images)} images with '
            f'{len(set(labels))} different names, but the server expects '
            'every image once: check data_root and data_prefix.'
        )
    for image, path in zip(images, labels, strict=True):
        with Image.open(image) as original, Image.open(path) as label:
            values = np.array(label)
            is_valid = (
                values.shape == original.size[::-1]
                and np.isin(values, form.ids).all()
            )
        if not is_valid:
            raise SubmissionError(
                f'{path} has not the size of {image}, or values that are no '
                'ids of classes: let the test pipeline keep the size.'
            )
    return labels


def pack(labels: Sequence[Path], folder: Path, form: SubmissionFormat) -> Path:
    """Write the archive, whole or not at all."""
    archive = folder / form.archive
    with atomic_write(archive) as draft:
        if archive.suffix == '.zip':  # stored, because PNGs are compressed
            with ZipFile(draft, 'w') as zipped:
                for path in labels:
                    zipped.write(path, path.relative_to(folder))
        else:
            with tarfile.open(draft, 'w:gz') as tar:
                for path in labels:
                    tar.add(path, path.relative_to(folder))
    return archive
