"""``--format-only``: from a test config to an archive ready for upload."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mmengine.config import Config, ConfigDict
from mmengine.dist import broadcast_object_list, is_main_process
from mmengine.evaluator import BaseMetric
from mmseg.registry import DATASETS, METRICS

from mmseg_margin.evaluation.tta import without_annotations

from .launch import build_runner
from .submission_folder import (
    SubmissionError,
    SubmissionFolder,
    SubmissionFormat,
    find_format,
    label_name,
)


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
            print(
                f'{len(images)} label images ({len(missing)} new) in '
                f'{folder.root}, all with valid size and values.\n'
                f'{_next_step(archive, form, len(images))}'
            )
    finally:
        folder.lock.release()


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


def _claim(
    folder: SubmissionFolder, cfg: Config
) -> tuple[list[str], list[int]]:
    """All images and the indices of the missing ones, on every rank."""
    outcome: list = [None]
    if is_main_process():
        try:
            images = list_images(cfg.test_dataloader.dataset)
            folder.claim(run_identity(cfg, folder.form.dataset, images))
            outcome = [(images, folder.missing(images))]
        except (SubmissionError, OSError) as error:
            outcome = [error]
    broadcast_object_list(outcome)
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


def _next_step(archive: Path, form: SubmissionFormat, images: int) -> str:
    size = f'{archive} ({archive.stat().st_size / 2**20:.1f} MiB)'
    if images == form.images:
        return f'Upload {size} to {form.server}'
    return (
        f'Warning: {size} is not complete: the test split of {form.dataset} '
        f'has {form.images:,} images, not {images:,}. Complete the download '
        'and run the same command with another --out.'
    )


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
