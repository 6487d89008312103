"""From a label file, or any loading transform, to a 256-bin histogram.

``LoadAnnotations`` is run once, on a label that holds all 256 values; the
table that results is applied to the histogram of each file. Pillow decodes the
files as it does for ``LoadAnnotations``: palettes give indices, wider numbers
are cast to uint8. Any other loading transform is executed for every file.
"""

import copy
import io
import os
import stat
import struct
import tempfile
import threading
import zlib
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any, NamedTuple

import mmengine.fileio as fileio
import numpy as np
from mmseg.datasets.transforms import LoadAnnotations, PackSegInputs
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from mmseg_margin.datasets import LoadMappedAnnotations

from .problems import Problem

UPSTREAM_PACKAGES = ('mmcv', 'mmseg', 'mmseg_margin')
BYTES_OF_WIDEST_PIXEL = 4
# cv2 and tifffile may read other suffixes though Pillow cannot.
PILLOW_SUFFIXES = ('.bmp', '.jpeg', '.jpg', '.png')
EXIF_ORIENTATION = 0x0112
EXIF_ROTATED_BY_90_DEGREES = range(5, 9)

Info = dict[str, Any]
Histogram = NDArray[np.int64]  # pixels of each value, shape (256,)
Size = tuple[int, int]  # width and height
# Path, size and time of a file; why it cannot be read; None if not local.
State = tuple[str, int, int] | OSError | None
Found = tuple[Problem, str]  # what is wrong, and a line that names the file


class NotAnIndexMapError(ValueError):
    """The label does not hold one class index for each pixel."""


class NoLabelError(LookupError):
    """The pipeline loads no label."""


# What a bad file makes Pillow, a file backend or mmseg's transforms raise.
# Anything else is a fault of the code and keeps its traceback.
LOADING_ERRORS = (
    *(AssertionError, EOFError, LookupError, MemoryError, OSError),
    *(OverflowError, SyntaxError, TypeError, ValueError),
    *(Image.DecompressionBombError, struct.error, zlib.error),
)
PROBLEM_OF_ERROR: tuple[tuple[Any, Problem], ...] = (
    (FileNotFoundError, Problem.MISSING_LABEL),
    (Image.DecompressionBombError, Problem.TOO_LARGE),
    (NotAnIndexMapError, Problem.NOT_AN_INDEX_MAP),
    (NoLabelError, Problem.NO_LABEL),
    ((OSError, SyntaxError, EOFError), Problem.UNREADABLE_LABEL),
    (LOADING_ERRORS, Problem.LOADING_FAILED),
)


class Label(NamedTuple):
    """What a label file holds, and what the pipeline delivers of it."""

    stored: Histogram
    delivered: Histogram
    size: Size | None = None  # if known
    outside: tuple[int, ...] = ()  # values that were not counted
    problems: tuple[Problem, ...] = ()


class LabelLoader:
    """Loads the labels of one data set as its pipeline does, in threads."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.transforms = list(dataset.pipeline.transforms)
        step = _step_of_load_annotations(self.transforms)
        # LoadAnnotations is applied to histograms, others to every file.
        self.is_known = step is not None
        # The step of another transform is known after the first label.
        self.loading_step = len(self.transforms) if step is None else step
        backends = (
            (getattr(x, 'backend_args', None) or {}).get('backend', 'local')
            for x in self.transforms[: self.loading_step + 1]
        )
        self.is_local = self.is_known and {*backends} == {'local'}
        self._tables: dict[str, NDArray[np.uint8]] = {}
        self._of_thread = threading.local()

    def mapping(self, info: Info) -> str:
        """From stored to delivered values, in words."""
        if not self.is_known:
            return ' -> '.join(type(x).__name__ for x in self.transforms)
        mapping = getattr(self.transforms[self.loading_step], 'mapping', None)
        return (
            f'LoadAnnotations(mapping={mapping}, '
            f'reduce_zero_label={info.get("reduce_zero_label")}, '
            f'label_map={info.get("label_map")})'
        )

    def load(self, info: Info) -> Label:
        """The label of one sample."""
        if not self.is_known:
            return self._run_pipeline(info)
        path, mapping = info.get('seg_map_path'), self.mapping(info)
        if not path:
            raise NoLabelError('the data set has no path of the label')
        backend_args = self.transforms[self.loading_step].backend_args
        label = decode(fileio.get(path, backend_args))
        if mapping not in self._tables:
            self._tables[mapping] = self._values_delivered(info)
        delivered = np.bincount(self._tables[mapping], label.stored, 256)
        return label._replace(delivered=delivered.astype(np.int64))

    def _values_delivered(self, info: Info) -> NDArray[np.uint8]:
        """The values that the transform maps 0 to 255 to, shape (256,)."""
        probe = copy.copy(self.transforms[self.loading_step])
        probe.backend_args = None
        values = np.arange(256, dtype=np.uint8).reshape(16, 16)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'all_values.png')
            Image.fromarray(values).save(path)
            results = {**info, 'seg_map_path': path, 'seg_fields': []}
            return probe(results)['gt_seg_map'].ravel()

    def _run_pipeline(self, info: Info) -> Label:
        if not hasattr(self._of_thread, 'transforms'):
            # Transforms are written for worker processes, not for threads.
            self._of_thread.transforms = copy.deepcopy(self.transforms)
        results = copy.deepcopy(info)
        for step, transform in enumerate(self._of_thread.transforms):
            results = transform(results)
            if 'gt_seg_map' in results:
                self.loading_step = step
                return count_values(np.asarray(results['gt_seg_map']))
        raise NoLabelError('no transform of the pipeline loads gt_seg_map')

    def foreign_transforms(self) -> list[str]:
        """Transforms of others between the loading and the packing."""
        later = self.transforms[self.loading_step + 1 :]
        before = takewhile(lambda x: not isinstance(x, PackSegInputs), later)
        return [type(x).__name__ for x in before if not _is_upstream(x)]


@dataclass(frozen=True)
class Annotation:
    """One label of the data set, where it is and how to load it."""

    position: int
    info: Info
    loader: LabelLoader

    @property
    def label_path(self) -> str:
        """The label file; some loaders derive it from the image's path."""
        info = self.info
        return str(info.get('seg_map_path') or info.get('img_path', '?'))

    @cached_property
    def states(self) -> list[State]:
        """The states of label and image, read once."""
        paths = [self.info.get(x) for x in ('seg_map_path', 'img_path')]
        is_local = self.loader.is_local
        return [
            file_state(path)
            if is_local and path and '://' not in path
            else None
            for path in paths
        ]

    def load(self) -> Label:
        """The label as the training pipeline delivers it."""
        state, limit = self.states[0], Image.MAX_IMAGE_PIXELS
        if isinstance(state, OSError):
            raise state
        # Up to twice the limit Pillow only warns.
        largest = 2 * BYTES_OF_WIDEST_PIXEL * (limit or float('inf'))
        if state and state[1] > largest:
            raise OSError(f'{state[1]} bytes, more than a label may have')
        return self.loader.load(self.info)

    def explain(self, error: BaseException) -> Found:
        """Why the label could not be loaded."""
        kinds = (x for kind, x in PROBLEM_OF_ERROR if isinstance(error, kind))
        problem, path = next(kinds), self.label_path
        if isinstance(error, FileNotFoundError):
            return problem, str(error.filename or path)
        if problem is Problem.LOADING_FAILED:
            return problem, f'{path}: {type(error).__name__}: {error}'
        return problem, f'{path}: {_reason(error)}'

    def check_image(self, label_size: Size | None) -> Found | None:
        """What is wrong with the image, as far as its header shows."""
        path, state = str(self.info.get('img_path')), self.states[1]
        if state is None:
            return None
        try:
            if isinstance(state, OSError):
                raise state
            with Image.open(path) as image:
                size = image.size
                if label_size not in (None, size):
                    orientation = image.getexif().get(EXIF_ORIENTATION)
                    if orientation in EXIF_ROTATED_BY_90_DEGREES:
                        size = image.height, image.width
        except FileNotFoundError:
            return Problem.MISSING_IMAGE, path
        except LOADING_ERRORS as error:
            # Pillow's limit is none of training, which does not use Pillow.
            is_large = isinstance(error, Image.DecompressionBombError)
            is_known = path.lower().endswith(PILLOW_SUFFIXES)
            if error is state or (is_known and not is_large):
                return Problem.UNREADABLE_IMAGE, f'{path}: {_reason(error)}'
            return None
        if label_size in (None, size):
            return None
        sizes = 'image {}x{}, label {}x{}'.format(*size, *label_size)
        return Problem.SIZE, f'{path}: {sizes}'


def _is_upstream(transform: Any) -> bool:
    return type(transform).__module__.split('.')[0] in UPSTREAM_PACKAGES


def _step_of_load_annotations(transforms: list[Any]) -> int | None:
    """None if labels are not loaded by it, or not with Pillow."""
    for step, transform in enumerate(transforms):
        if type(transform) in (LoadAnnotations, LoadMappedAnnotations):
            return step if transform.imdecode_backend == 'pillow' else None
        if not _is_upstream(transform):
            break
    return None


def file_state(path: str) -> State:
    """The state of a local file, with one call of the system."""
    try:
        status = os.stat(path)
    except OSError as error:
        return error
    # Links are followed; reading a device or a pipe would block.
    if not stat.S_ISREG(status.st_mode):
        return OSError('not a regular file')
    if status.st_size == 0:
        return OSError('the file is empty')
    return os.path.abspath(path), status.st_size, status.st_mtime_ns


def decode(content: bytes) -> Label:
    """Decode one file. Pillow's limit on pixels raises, as in training."""
    with Image.open(io.BytesIO(content)) as image:
        if image.format == 'EPS':
            raise NotAnIndexMapError('a PostScript program, which is not run')
        problems = []
        if image.format in ('JPEG', 'MPO'):
            problems.append(Problem.LOSSY)
        if min(image.size) == 1:
            problems.append(Problem.THIN)
        if image.mode in ('L', 'P'):  # most labels; counted without a copy
            counts = np.array(image.histogram(), dtype=np.int64)
        else:
            pixels = np.asarray(image)
            _check_indices(pixels)
            if pixels.min(initial=0) < 0 or pixels.max(initial=0) > 255:
                problems.append(Problem.WRAPPED)
            with np.errstate(invalid='ignore'):  # of floats beyond integers
                counts = count_values(pixels.astype(np.uint8)).stored
        return Label(counts, counts, image.size, problems=tuple(problems))


def count_values(labels: NDArray) -> Label:
    """The histogram of labels of any shape and type."""
    _check_indices(labels)
    is_byte = (labels >= 0) & (labels < 256)
    counts = np.bincount(labels[is_byte].astype(np.uint8), minlength=256)
    outside = tuple(int(value) for value in np.unique(labels[~is_byte]))
    return Label(counts, counts, outside=outside)


def _check_indices(labels: NDArray) -> None:
    channels = labels.shape[-1] if labels.ndim == 3 else 1
    if channels in (2, 3, 4):  # a volume of biomedical labels has more
        raise NotAnIndexMapError(f'{channels} channels, not one class index')
    if not (np.isfinite(labels) & (labels == np.rint(labels))).all():
        raise NotAnIndexMapError('values that are not whole numbers')


def _reason(error: BaseException) -> str:
    if isinstance(error, UnidentifiedImageError):
        return 'not an image file'  # Pillow's text holds a memory address
    text = getattr(error, 'strerror', None) or str(error)
    return text.split(', could be')[0]  # ... a decompression bomb DOS attack
