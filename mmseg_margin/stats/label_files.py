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
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import takewhile
from typing import Any, NamedTuple

import mmengine.fileio as fileio
import numpy as np
from mmseg.datasets.transforms import LoadAnnotations, PackSegInputs
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from mmseg_margin.datasets import LoadMappedAnnotations

UPSTREAM_PACKAGES = ('mmcv', 'mmseg', 'mmseg_margin')
# cv2 and tifffile may read other suffixes though Pillow cannot.
PILLOW_SUFFIXES = ('.bmp', '.jpeg', '.jpg', '.png')
EXIF_ORIENTATION = 0x0112


class Problem(Enum):
    """The kinds of problems, in the order of the report: (headline, fix)."""

    MISSING = (
        'missing labels or images',
        'check data_root, data_prefix, img_suffix and seg_map_suffix',
    )
    UNREADABLE = ('unreadable labels or images', 'copy or export them again')
    TOO_LARGE = (
        'label files that declare more pixels than Pillow accepts',
        'cut them into tiles, or raise PIL.Image.MAX_IMAGE_PIXELS',
    )
    NOT_AN_INDEX_MAP = (
        'label files without one class index for each pixel',
        'convert them to single-channel files that hold the class index',
    )
    LOSSY = ('labels in JPEG, a lossy format', 'export them again as PNG')
    NO_LABEL = (
        'samples without a label',
        'add LoadAnnotations to the pipeline, and seg_map_path to data_prefix',
    )
    LOADING_FAILED = ('files that cannot be loaded', 'see the messages')
    VALUE = (
        'label values outside the classes',
        'map them with LoadMappedAnnotations, or correct ignore_index, '
        'num_classes and the list of classes',
    )
    BINARY_MASK = (
        'every label is either 0 or 255, a mask rather than class indices',
        'in every pipeline, replace LoadAnnotations by '
        "dict(type='LoadMappedAnnotations', mapping={255: 1})",
    )
    SIZE = ('labels of another size than the image', 'check the pairs')
    THIN = ('labels one pixel wide or high', 'take them out of the split')
    WRAPPED = (
        'label files with values that LoadAnnotations takes modulo 256',
        'store the class index in 8 bits; -1 becomes 255',
    )


Info = dict[str, Any]
Histogram = NDArray[np.int64]  # pixels of each value, shape (256,)
Size = tuple[int, int]  # width and height
# Path, size and time of a file; why it cannot be read; None if not local.
State = tuple[str, int, int] | OSError | None


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
    (FileNotFoundError, Problem.MISSING),
    (Image.DecompressionBombError, Problem.TOO_LARGE),
    (NotAnIndexMapError, Problem.NOT_AN_INDEX_MAP),
    (NoLabelError, Problem.NO_LABEL),
    ((OSError, SyntaxError, EOFError), Problem.UNREADABLE),
    (LOADING_ERRORS, Problem.LOADING_FAILED),
)


class Finding(NamedTuple):
    """One problem of one file."""

    problem: Problem
    text: str  # names the file
    values: Sequence[int] = ()  # outside the classes


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
        self.is_local = self.is_known and not any(
            getattr(x, 'backend_args', None) for x in self.transforms
        )
        self._tables: dict[str, NDArray[np.uint8]] = {}
        self._of_thread = threading.local()

    def mapping(self, info: Info) -> str:
        """From stored to delivered values, in words."""
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
        return [file_state(x) if is_local and x else None for x in paths]

    def load(self) -> Label:
        """The label as the training pipeline delivers it."""
        if isinstance(self.states[0], OSError):
            raise self.states[0]
        return self.loader.load(self.info)

    def check_image(self, label_size: Size | None) -> list[Finding]:
        """What is wrong with the image, as far as its header shows."""
        path, state = str(self.info.get('img_path')), self.states[1]
        if state is None:
            return []
        try:
            if isinstance(state, OSError):
                raise state
            with Image.open(path) as image:
                size = image.size
                differs = label_size not in (None, size)
                # From 5 on, cv2 rotates the image by 90 degrees.
                if differs and image.getexif().get(EXIF_ORIENTATION, 1) >= 5:
                    size = image.height, image.width
        except Image.DecompressionBombError:
            return []  # training reads images with cv2, without this limit
        except LOADING_ERRORS as error:
            is_known = path.lower().endswith(PILLOW_SUFFIXES)
            is_bad = error is state or is_known
            return [explain(path, error)] if is_bad else []
        if label_size in (None, size):
            return []
        sizes = 'image {}x{}, label {}x{}'.format(*size, *label_size)
        return [Finding(Problem.SIZE, f'{path}: {sizes}')]


def explain(path: str, error: BaseException) -> Finding:
    """Why a file could not be loaded."""
    kinds = (x for kind, x in PROBLEM_OF_ERROR if isinstance(error, kind))
    problem = next(kinds)
    reason = getattr(error, 'strerror', None) or str(error)
    if isinstance(error, UnidentifiedImageError):
        reason = 'not an image file'  # Pillow's text holds a memory address
    elif problem is Problem.LOADING_FAILED:
        reason = f'{type(error).__name__}: {reason}'
    return Finding(problem, f'{path}: {reason}')


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
    if '://' in path:
        return None
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
