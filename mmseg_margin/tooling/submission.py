"""Submissions to the servers of Cityscapes, ADE20K and Pascal VOC."""

import os
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import ZipFile

import numpy as np
from mmengine.config import Config
from mmengine.dist import barrier
from mmengine.evaluator import BaseMetric
from mmseg.registry import DATASETS, METRICS
from numpy.typing import NDArray
from PIL import Image

from mmseg_margin.atomic_write import atomic_write
from mmseg_margin.config_tools import registered_name
from mmseg_margin.errors import SettingError
from mmseg_margin.evaluation.tta import loads_annotations

from .launch import build_runner


@dataclass(frozen=True)
class SubmissionFormat:
    """A server's archive, label images and test split."""

    server: str  # page for the upload
    archive: str  # file name; .zip or .tgz
    images: int  # number of images in the test split
    ids: tuple[int, ...]  # label value of each of the data set's own classes
    labelled: tuple[str, ...]  # splits that are replaced by the test split
    test: str  # the test split
    download: str = ''  # folder of a test split that is a separate download
    folder: str = ''  # folder of the label images inside the archive


VOC = 'PascalVOCDataset'  # a split is a list of names; labels have a palette
FORMATS = {
    'CityscapesDataset': SubmissionFormat(
        server='https://www.cityscapes-dataset.com/submit/',
        archive='cityscapes.zip',
        images=1525,
        # The ids of the 19 evaluated classes among Cityscapes' 34.
        ids=(7, 8, 11, 12, 13, 17, *range(19, 29), 31, 32, 33),
        labelled=('train', 'val'),
        test='test',
    ),
    'ADE20KDataset': SubmissionFormat(
        server='http://sceneparsing.csail.mit.edu/',
        archive='ade20k.zip',
        images=3352,
        ids=tuple(range(1, 151)),  # 0 is 'other', not evaluated
        labelled=('training', 'validation'),
        test='testing',
        download='../release_test/testing',
    ),
    VOC: SubmissionFormat(
        server='http://host.robots.ox.ac.uk:8080/',
        archive='results.tgz',
        images=1456,
        ids=tuple(range(21)),
        labelled=('train.txt', 'val.txt', 'trainval.txt'),
        test='test.txt',
        folder='results/VOC2012/Segmentation/comp6_test_cls',
    ),
}


def find_format(name: str) -> SubmissionFormat:
    """The format of a data set, by its registered name."""
    if name not in FORMATS:
        raise SettingError(
            f'--format-only knows no server for {name}, only for '
            f'{", ".join(FORMATS)}: use --out without --format-only to keep '
            'the predictions of a labelled split.'
        )
    return FORMATS[name]


def label_ids(name: str, classes: Sequence[str]) -> NDArray[np.uint8]:
    """A server's label values of classes, looked up by name."""
    known = DATASETS.get(name).METAINFO['classes']
    ids = dict(zip(known, find_format(name).ids, strict=True))
    unknown = [label for label in classes if label not in ids]
    if unknown:
        raise SettingError(
            f'The server of {name} knows no class {", ".join(unknown)}: name '
            'the classes in metainfo as in the original data set.'
        )
    return np.array([ids[label] for label in classes], dtype=np.uint8)


def use_test_images(cfg: Config) -> None:
    """Let a config test the unlabelled split, before views are added."""
    dataset = cfg.test_dataloader.dataset
    name = registered_name(dataset)
    form = find_format(name)
    place = dataset if name == VOC else dataset.data_prefix
    key = 'ann_file' if name == VOC else 'img_path'
    split = PurePosixPath(place[key])
    if split.name in form.labelled:
        test = str(split.with_name(form.test))
        root = Path(dataset.get('data_root') or '')
        is_there = not form.download or (root / test).is_dir()
        place[key] = test if is_there else form.download
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

    ``cfg`` is ready after :func:`use_test_images`, and with ``load_from`` and
    the test-time augmentation set. ``output_dir`` is new or empty.
    """
    folder = Path(output_dir)
    name = registered_name(cfg.test_dataloader.dataset)
    metric = dict(type='SubmissionMetric', output_dir=output_dir, dataset=name)
    cfg.test_evaluator = metric
    runner = build_runner(cfg, is_verbose)
    if folder.exists() and not (folder.is_dir() and not os.listdir(folder)):
        raise SettingError(
            f'--out {folder} is not an empty folder, and nothing in it was '
            'changed: choose a new or empty folder.'
        )
    barrier()  # until every rank has found the folder empty
    runner.test()


@METRICS.register_module()
class SubmissionMetric(BaseMetric):
    """Writes predictions in the format of a data set's server, and packs them.

    ``dataset`` is the registered name of the data set.
    """

    def __init__(self, output_dir: str, dataset: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.folder = Path(output_dir)
        self.dataset = dataset
        self.form = find_format(dataset)

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        ids = label_ids(self.dataset, (self.dataset_meta or {})['classes'])
        for sample in data_samples:
            prediction = sample['pred_sem_seg']['data'].squeeze(0)
            label = Image.fromarray(ids[prediction.cpu().numpy()])
            with Image.open(sample['img_path']) as image:
                if label.size != image.size:
                    raise SettingError(
                        f'The prediction of {image.filename} has another '
                        'size: let the test pipeline keep the size.'
                    )
            if self.dataset == VOC:
                palette = DATASETS.get(VOC).METAINFO['palette']
                label.putpalette(np.array(palette, np.uint8).tobytes())
            name = f'{Path(sample["img_path"]).stem}.png'
            path = self.folder / self.form.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            label.save(path)
            self.results.append(path)

    def compute_metrics(self, results: list[Path]) -> dict[str, float]:
        """Pack the label images of all ranks; their number."""
        if len(set(results)) < len(results):
            raise SettingError(
                'The test split has images of the same name, but the server '
                'expects every image once: check data_root and data_prefix.'
            )
        archive = pack(sorted(results), self.folder, self.form)
        found, total = len(results), self.form.images
        print(f'{found:,} label images of {total:,} are in {archive}.')
        print(
            f'Upload it to {self.form.server}'
            if found == total
            else 'Warning: the test split is not complete.'
        )
        return {'images': found}


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
