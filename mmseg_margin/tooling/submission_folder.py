"""The folder of a submission, and the metric that writes into it.

A submission that was interrupted can be continued, and files that do not
belong to it are never changed.
"""

import tarfile
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZipFile

import numpy as np
from filelock import FileLock, Timeout
from mmengine.evaluator import BaseMetric
from mmengine.fileio import dump, load
from mmseg.registry import METRICS
from PIL import Image

from mmseg_margin.atomic_write import atomic_write

from .submission_formats import SubmissionError, SubmissionFormat, find_format

MARKER = 'submission.json'
# Workers of a killed process notice its end, and free its lock, after 5 s.
LOCK_SECONDS = 6.0


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
