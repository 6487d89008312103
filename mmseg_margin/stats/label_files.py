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
from typing import Any, NamedTuple

import mmengine.fileio as fileio
import numpy as np
from mmcv.transforms import LoadImageFromFile
from mmseg.datasets.transforms import LoadAnnotations, PackSegInputs
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from mmseg_margin.datasets import LoadMappedAnnotations

from .problems import Problem

UPSTREAM_PACKAGES = ('mmcv', 'mmseg', 'mmseg_margin')
COLOUR_CHANNELS = (3, 4)
BYTES_OF_WIDEST_PIXEL = 4
# cv2 and tifffile may read other suffixes though Pillow cannot.
PILLOW_SUFFIXES = ('.bmp', '.jpeg', '.jpg', '.png')
KEYS_READ: dict[type, str] = {
    LoadAnnotations: 'seg_map_path',
    LoadMappedAnnotations: 'seg_map_path',
    LoadImageFromFile: 'img_path',
}
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
        self.loading_step = len(self.transforms)  # until the first label
        # Set if it is LoadAnnotations, which is applied to the histogram.
        self.transform: LoadAnnotations | None = None
        # Files that are known to be read, on this machine.
        self.local_keys: set[str] = set()
        self._tables: dict[str, NDArray[np.uint8]] = {}
        self._of_thread = threading.local()
        step = _fast_step(self.transforms)
        if step is not None:
            self.loading_step, self.transform = step, self.transforms[step]
            for transform in self.transforms[: step + 1]:
                place = getattr(transform, 'backend_args', None) or {}
                if place.get('backend', 'local') == 'local':
                    self.local_keys.add(KEYS_READ.get(type(transform), ''))

    def mapping(self, info: Info) -> str:
        """From stored to delivered values, in words."""
        if self.transform is None:
            return ' -> '.join(type(x).__name__ for x in self.transforms)
        given = {'mapping': getattr(self.transform, 'mapping', None)}
        given |= {x: info.get(x) for x in ('reduce_zero_label', 'label_map')}
        listing = ', '.join(f'{key}={value}' for key, value in given.items())
        return f'LoadAnnotations({listing})'

    def load(self, info: Info) -> Label:
        """The label of one sample."""
        if self.transform is None:
            return self._run_pipeline(info)
        path, mapping = info.get('seg_map_path'), self.mapping(info)
        if not path:
            raise NoLabelError('the data set has no path of the label')
        label = decode(fileio.get(path, self.transform.backend_args))
        if mapping not in self._tables:
            self._tables[mapping] = self._values_delivered(info)
        delivered = np.bincount(self._tables[mapping], label.stored, 256)
        return label._replace(delivered=delivered.astype(np.int64))

    def _values_delivered(self, info: Info) -> NDArray[np.uint8]:
        """The values that the transform maps 0 to 255 to, shape (256,)."""
        probe: Any = copy.copy(self.transform)
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
                labels = np.asarray(results['gt_seg_map'])
                if labels.ndim == 3 and labels.shape[-1] in COLOUR_CHANNELS:
                    _check_channels(labels.shape[-1])
                return count_values(labels)
        raise NoLabelError('no transform of the pipeline loads gt_seg_map')

    def foreign_transforms(self) -> list[str]:
        """Transforms of others between the loading and the packing."""
        names = []
        for transform in self.transforms[self.loading_step + 1 :]:
            if isinstance(transform, PackSegInputs):
                break
            if not _is_upstream(transform):
                names.append(type(transform).__name__)
        return names


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
    def label_state(self) -> State:
        """The state of the label file, read once."""
        return self._state('seg_map_path')

    @cached_property
    def image_state(self) -> State:
        """The state of the image file, read once."""
        return self._state('img_path')

    def _state(self, key: str) -> State:
        path = self.info.get(key) or ''
        is_local = key in self.loader.local_keys and '://' not in path
        return file_state(path) if path and is_local else None

    def load(self) -> Label:
        """The label as the training pipeline delivers it."""
        state, limit = self.label_state, Image.MAX_IMAGE_PIXELS
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
        problem, reason = next(kinds), _reason(error)
        if problem is Problem.LOADING_FAILED:
            reason = f'{type(error).__name__}: {error}'
        return problem, f'{self.label_path}: {reason}'

    def check_image(self, label_size: Size | None) -> Found | None:
        """What is wrong with the image, as far as its header shows."""
        state = self.image_state
        if state is None:
            return None
        path = self.info['img_path']
        try:
            if isinstance(state, OSError):
                raise state
            size = _image_size(path, label_size)
        except FileNotFoundError:
            return Problem.MISSING_IMAGE, path
        except Image.DecompressionBombError:
            return None  # images may be large, and are not read with Pillow
        except LOADING_ERRORS as error:
            is_known = path.lower().endswith(PILLOW_SUFFIXES)
            if is_known or error is state:
                return Problem.UNREADABLE_IMAGE, f'{path}: {_reason(error)}'
            return None
        if label_size in (None, size):
            return None
        sizes = 'image {}x{}, label {}x{}'.format(*size, *label_size)
        return Problem.SIZE, f'{path}: {sizes}'


def _is_upstream(transform: Any) -> bool:
    return type(transform).__module__.split('.')[0] in UPSTREAM_PACKAGES


def _fast_step(transforms: list[Any]) -> int | None:
    """Where labels are loaded, if by LoadAnnotations with Pillow."""
    for step, transform in enumerate(transforms):
        if KEYS_READ.get(type(transform)) == 'seg_map_path':
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
        _check_channels(len(image.getbands()))
        has_problem = {
            Problem.LOSSY: image.format in ('JPEG', 'MPO'),
            Problem.THIN: min(image.size) == 1,
        }
        if image.mode in ('L', 'P'):  # most labels; counted without a copy
            counts = np.array(image.histogram(), dtype=np.int64)
        else:
            pixels = np.asarray(image)
            _check_whole(pixels)
            with np.errstate(invalid='ignore'):  # of floats beyond integers
                labels = pixels.astype(np.uint8)
            counts = count_values(labels).stored
            has_problem[Problem.WRAPPED] = (
                pixels.min(initial=0) < 0 or pixels.max(initial=0) > 255
            )
        problems = tuple(x for x, is_found in has_problem.items() if is_found)
        return Label(counts, counts, image.size, problems=problems)


def count_values(labels: NDArray) -> Label:
    """The histogram of labels of any shape and type."""
    _check_whole(labels)
    is_byte = (labels >= 0) & (labels < 256)
    counts = np.bincount(labels[is_byte].astype(np.uint8), minlength=256)
    outside = tuple(int(value) for value in np.unique(labels[~is_byte]))
    return Label(counts, counts, outside=outside)


def _check_whole(values: NDArray) -> None:
    if not (np.isfinite(values) & (values == np.rint(values))).all():
        raise NotAnIndexMapError('values that are not whole numbers')


def _check_channels(number: int) -> None:
    if number > 1:
        raise NotAnIndexMapError(f'{number} channels, not one class index')


def _image_size(path: str, label_size: Size | None) -> Size:
    """The size in the header; rotated if that is how the image is shown."""
    with Image.open(path) as image:
        if label_size not in (None, image.size):
            orientation = image.getexif().get(EXIF_ORIENTATION)
            if orientation in EXIF_ROTATED_BY_90_DEGREES:
                return image.height, image.width
        return image.size


def _reason(error: BaseException) -> str:
    if isinstance(error, UnidentifiedImageError):
        return 'not an image file'  # Pillow's text holds a memory address
    text = getattr(error, 'strerror', None) or str(error)
    return text.split(', could be')[0]  # ... a decompression bomb DOS attack
