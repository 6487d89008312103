"""``--format-only``: from a test config to an archive ready for upload."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from mmengine.config import Config, ConfigDict
from mmengine.dist import broadcast_object_list, is_main_process
from mmengine.runner import Runner
from mmseg.registry import DATASETS

from ..pipelines import without_annotations
from .folder import SubmissionFolder, label_name
from .formats import SubmissionError, SubmissionFormat, find_format

T = TypeVar('T')


def make_submission(cfg: Config, output_dir: str) -> None:
    """Predict the test split of ``cfg`` and pack it for the server.

    Args:
        cfg: Config to test, with ``load_from`` set and the test-time
            augmentation chosen; the test split is switched to here.
        output_dir: Folder of the submission, new, empty or one to go on with.
    """
    dataset = cfg.test_dataloader.dataset
    form = find_format(dataset)
    form.use_test_split(dataset)
    dataset.data_prefix.pop('seg_map_path', None)
    dataset.pop('indices', None)
    dataset.pipeline = without_annotations(dataset.pipeline)
    folder = SubmissionFolder(output_dir, form)

    def claim() -> tuple[list[str], list[int]]:
        images = list_images(dataset)
        folder.claim(run_identity(cfg, form.dataset, images))
        return images, folder.missing(images)

    images, missing = _on_main_process(claim)
    try:
        if missing:
            dataset.indices = missing
            cfg.test_evaluator = {
                'type': 'SubmissionMetric',
                'output_dir': str(output_dir),
                'dataset': form.dataset,
            }
            Runner.from_cfg(cfg).test()
        if is_main_process():
            for image in images:
                folder.check(image)
            archive = folder.pack(images)
            print(
                f'{len(images)} label images ({len(missing)} new) in '
                f'{folder.root}, each checked for its size and its values.\n'
                f'{_what_to_do(archive, form, len(images))}'
            )
    finally:
        folder.release()


def _what_to_do(archive: Path, form: SubmissionFormat, images: int) -> str:
    size = f'{archive} ({archive.stat().st_size / 2**20:.1f} MiB)'
    if images == form.images:
        return f'Upload {size} to {form.server}'
    return (
        f'Warning: {size} is not a whole submission: the test split of '
        f'{form.dataset} has {form.images:,} images, not {images:,}. Complete '
        'the download and give the same command with another --out.'
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
            f'{len(repeated)} repeated names {repeated[:3]}, but a server '
            'wants every image once: check data_root and data_prefix.'
        )
    return images


def run_identity(
    cfg: Config, dataset: str, images: Sequence[str]
) -> dict[str, str]:
    """What decides the predictions, so that two runs are never mixed."""
    checkpoint = Path(cfg.load_from)
    if checkpoint.is_file():
        weights = _file_digest(checkpoint)
    else:
        weights = str(cfg.load_from)
    files = [(os.path.realpath(image), os.stat(image)) for image in images]
    return {
        'dataset': dataset,
        'images': _digest(
            [(path, stat.st_size, stat.st_mtime_ns) for path, stat in files]
        ),
        'checkpoint': weights,
        'pipeline': _digest(cfg.test_dataloader.dataset.pipeline),
        'model': _digest(cfg.model),
    }


def _file_digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open('rb') as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _digest(settings: object) -> str:
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _on_main_process(compute: Callable[[], T]) -> T:
    """What ``compute`` gives or raises on the main process, on every rank."""
    outcome: list = [None]
    if is_main_process():
        try:
            outcome = [compute()]
        except (SubmissionError, OSError) as error:
            outcome = [error]
    broadcast_object_list(outcome)
    if isinstance(outcome[0], (SubmissionError, OSError)):
        raise outcome[0]
    return outcome[0]
