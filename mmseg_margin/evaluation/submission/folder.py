"""A folder of label images that is restartable and harms nobody's files."""

import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from mmengine.fileio import dump, load
from PIL import Image

from mmseg_margin.atomic_write import atomic_write

from .formats import SubmissionError, SubmissionFormat

MARKER = 'submission.json'


class SubmissionFolder:
    """The label images of one submission, a marker file and the archive."""

    def __init__(self, root: str | Path, form: SubmissionFormat) -> None:
        self.root = Path(root)
        self.form = form

    def claim(self, identity: dict[str, str]) -> None:
        """Make the folder, or go on with it if ``identity`` made it."""
        marker = self.root / MARKER
        if marker.is_file():
            self._check_identity(load(marker), identity)
            return
        if self.root.exists() and not self._is_empty():
            raise SubmissionError(
                f'--out {self.root} holds files that are not a submission of '
                'this tool, and nothing was touched: name a new or empty '
                'folder.'
            )
        self.root.mkdir(parents=True, exist_ok=True)
        with atomic_write(marker) as part:
            dump(identity, part, file_format='json', indent=2)

    def _is_empty(self) -> bool:
        if not self.root.is_dir():
            return False
        # What a kill while the marker was written leaves behind is our own.
        ours = f'.{MARKER}.'
        return all(path.name.startswith(ours) for path in self.root.iterdir())

    def _check_identity(self, found: dict, identity: dict[str, str]) -> None:
        differing = [
            key for key in identity if found.get(key) != identity[key]
        ]
        if differing:
            raise SubmissionError(
                f'--out {self.root} holds the predictions of another run '
                f'(different: {", ".join(differing)}), and nothing was '
                'touched: name another folder.'
            )

    def label_path(self, image: str) -> Path:
        """Where the label image of an image belongs."""
        return self.root / self.form.folder / f'{Path(image).stem}.png'

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
        with Image.open(path) as label:
            found, values = label.size, np.array(label)
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
        paths = [self.label_path(image) for image in images]
        names = [path.relative_to(self.root).as_posix() for path in paths]
        with atomic_write(archive) as part:
            if archive.suffix == '.zip':
                # PNGs are compressed already.
                with zipfile.ZipFile(part, 'w', zipfile.ZIP_STORED) as packed:
                    for path, name in zip(paths, names, strict=True):
                        packed.write(path, name)
            else:
                with tarfile.open(part, 'w:gz') as tar:
                    for path, name in zip(paths, names, strict=True):
                        tar.add(path, name)
        return archive
