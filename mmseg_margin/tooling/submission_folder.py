"""A folder of label images that is restartable and harms nobody's files."""

import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout
from mmengine.fileio import dump, load
from PIL import Image

from mmseg_margin.atomic_write import atomic_write

from .submission_formats import SubmissionError, SubmissionFormat

MARKER = 'submission.json'
# Workers of a killed process keep its lock until they notice, after 5.
LOCK_SECONDS = 6.0


class SubmissionFolder:
    """The label images of one submission, a marker file and the archive."""

    def __init__(self, root: str | Path, form: SubmissionFormat) -> None:
        self.root = Path(root)
        self.form = form
        # One for each process, which may claim its own folder again.
        self._lock = FileLock(
            self.root.absolute() / f'.{MARKER}.lock', is_singleton=True
        )

    def claim(self, identity: dict[str, str]) -> None:
        """Make the folder, or go on with it if ``identity`` made it.

        No other process can claim it until :meth:`release`, or the end of
        this one.
        """
        self._refuse_foreign_files()
        self.root.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=LOCK_SECONDS)
        except Timeout:
            raise SubmissionError(
                f'--out {self.root} is in use by another process, and nothing '
                'was touched: wait for its end, or name another folder.'
            ) from None
        try:
            self._mark(identity)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Let other processes go on with the folder."""
        self._lock.release()

    def _refuse_foreign_files(self) -> None:
        if not self.root.exists() or (self.root / MARKER).is_file():
            return
        # The lock, and what a kill while the marker was written leaves.
        ours = f'.{MARKER}.'
        if not self.root.is_dir() or not all(
            path.name.startswith(ours) for path in self.root.iterdir()
        ):
            raise SubmissionError(
                f'--out {self.root} holds files that are not a submission of '
                'this tool, and nothing was touched: name a new or empty '
                'folder.'
            )

    def _mark(self, identity: dict[str, str]) -> None:
        """Write down whose folder it is, or check it."""
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
                f'--out {self.root} holds the predictions of another run '
                f'(different: {", ".join(differing)}), and nothing was '
                'touched: name another folder.'
            )

    def label_path(self, image: str) -> Path:
        """Where the label image of an image belongs."""
        return self.root / self.form.folder / label_name(image)

    def missing(self, images: Sequence[str]) -> list[int]:
        """Indices of the images that have no label image yet."""
        return [
            index
            for index, image in enumerate(images)
            if not self.label_path(image).exists()
        ]

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
        """Stop at a label image that the server would refuse."""
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
        present = np.flatnonzero(np.bincount(values.ravel()))
        invalid = sorted({*present.tolist()} - {*self.form.label_ids})
        if found != size or values.ndim != 2 or invalid:
            raise SubmissionError(
                f'{path} is not valid (size {found} for an image of {size}, '
                f'invalid values {invalid}): delete it and run again.'
            )

    def pack(self, images: Sequence[str]) -> Path:
        """Write the archive of exactly one label image for each image."""
        archive = self.root / self.form.archive
        paths = map(self.label_path, images)
        names = {
            path: path.relative_to(self.root).as_posix() for path in paths
        }
        with atomic_write(archive) as part:
            if archive.suffix == '.zip':  # not compressed, as PNGs are
                with zipfile.ZipFile(part, 'w') as zipped:
                    for path, name in names.items():
                        zipped.write(path, name)
            else:
                with tarfile.open(part, 'w:gz') as tar:
                    for path, name in names.items():
                        tar.add(path, name)
        return archive


def label_name(image: str) -> str:
    """The file name of an image's label image in the archive."""
    name = Path(image).stem
    if '\\' in name:
        raise SubmissionError(
            f'The name of {image} holds a backslash, which leads out of the '
            'folder where an archive is unpacked on Windows: rename it.'
        )
    return f'{name}.png'
