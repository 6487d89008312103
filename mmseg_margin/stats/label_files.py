"""From a label file, or any loading transform, to a 256-bin histogram.

``LoadAnnotations`` is run once, on a label that holds all 256 values; the
table that results is applied to the histogram of each file. Pillow decodes the
files as it does for ``LoadAnnotations``: palettes give indices, wider integers
wrap to uint8. Any other loading transform is executed for every file.
"""

import copy
import io
import os
import stat
import struct
import threading
import zlib
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import mmengine.fileio as fileio
import numpy as np
from mmcv.transforms import LoadImageFromFile
from mmseg.datasets.transforms import LoadAnnotations
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

NUM_VALUES = 256
LOSSY_FORMATS = ('JPEG', 'MPO')
UPSTREAM_PACKAGES = ('mmcv', 'mmseg')
COLOUR_CHANNELS = (3, 4)
BYTES_OF_WIDEST_PIXEL = 4
ALL_VALUES = 'mmseg_margin_all_values'
# cv2 and tifffile may read other suffixes though Pillow cannot.
PILLOW_SUFFIXES = ('.bmp', '.jpeg', '.jpg', '.png')
EXIF_ORIENTATION = 0x0112
EXIF_ROTATED_BY_90_DEGREES = range(5, 9)
# What a bad file makes Pillow, a file backend or mmseg's transforms raise.
# Anything else is a fault of the code and keeps its traceback.
LOADING_ERRORS = (
    *(AssertionError, EOFError, LookupError, MemoryError, OSError),
    *(OverflowError, SyntaxError, TypeError, ValueError),
    *(Image.DecompressionBombError, struct.error, zlib.error),
)

EXPORT_AGAIN = 'copy or export these files again'

Info = dict[str, Any]
Histogram = NDArray[np.int64]  # pixels of each value, shape (256,)


class Problem(Enum):
    """What can be wrong with a file: (headline, likely fix)."""

    MISSING_LABEL = (
        'missing label files',
        'check data_root, data_prefix and seg_map_suffix, or take the images '
        'without a label out of the split',
    )
    MISSING_IMAGE = (
        'missing images',
        'check data_root, data_prefix and img_suffix',
    )
    UNREADABLE_LABEL = ('unreadable label files', EXPORT_AGAIN)
    UNREADABLE_IMAGE = ('unreadable images', EXPORT_AGAIN)
    TOO_LARGE = (
        'label files that declare more pixels than Pillow accepts',
        'training would fail on them as well: cut them into tiles, or raise '
        'PIL.Image.MAX_IMAGE_PIXELS if you trust them',
    )
    NOT_AN_INDEX_MAP = (
        'label files without one class index for each pixel',
        'convert them to single-channel files that hold the class index',
    )
    LOSSY = (
        'label files in JPEG, a lossy format: it changes values, above all '
        'at the borders of classes',
        'export the labels again as PNG from their source; converting these '
        'files keeps the damage',
    )
    LOADING_FAILED = (
        'label files on which the loading transform failed',
        'the message is that of the loading transform in the pipeline',
    )
    VALUE = ('label values outside the classes', '')
    BINARY_MASK = (
        'every label is either 0 or 255, a mask rather than class indices',
        'map 255 to 1 in the files: as it is, 255 counts as ignored or as '
        'out of range, and no class but 0 is ever learnt',
    )
    SIZE = (
        'labels whose size differs from that of the image',
        'check that image and label belong together and have the same size',
    )
    THIN = (
        'labels that are one pixel wide or high, which LoadAnnotations '
        'squeezes to a line, so that training fails',
        'take them out of the split',
    )
    WRAPPED = (
        'label files with values above 255, which LoadAnnotations takes '
        'modulo 256',
        'store the class index in 8 bits, or load it with your own transform',
    )


Found = tuple[Problem, str]  # what is wrong, and a line that names the file


def with_fix(finding: str, fix: str) -> str:
    """A finding of the label check, with what is likely to correct it."""
    return f'{finding}\n    likely fix: {fix}.'


class NotAnIndexMapError(ValueError):
    """The label does not hold one class index for each pixel."""


class Label(NamedTuple):
    """What a label file holds, and what the pipeline delivers of it."""

    stored: Histogram
    delivered: Histogram
    size: tuple[int, int] | None = None  # width and height, if known
    wrapped: bool = False  # values above 255 were counted modulo 256
    outside: tuple[int, ...] = ()  # other values, which were not counted
    lossy: bool = False  # of a lossy file format


@dataclass(frozen=True)
class Annotation:
    """One label of the data set, where it is and how to load it."""

    position: int
    info: Info
    loader: 'PipelineLoader'
    mapping: str  # from stored to delivered values, in words
    label_file: str | None = None  # local; determines the label with mapping
    image_file: str | None = None  # local; its header gives its size

    @property
    def label_path(self) -> str:
        """The label file; some loaders derive it from the image's path."""
        info = self.info
        return str(info.get('seg_map_path') or info.get('img_path', '?'))

    def load(self) -> Label:
        """The label as the training pipeline delivers it."""
        return self.loader.load(self)


class PipelineLoader:
    """Runs a pipeline in many threads until it has delivered a label."""

    def __init__(self, transforms: list[Any]) -> None:
        self._transforms = transforms
        self._mapping = ' -> '.join(type(x).__name__ for x in transforms)
        self._of_thread = threading.local()

    def annotation(self, position: int, info: Info) -> Annotation:
        """Where the label of one sample comes from."""
        return Annotation(position, info, self, self._mapping)

    def load(self, annotation: Annotation) -> Label:
        """The label of one sample as the training pipeline delivers it."""
        if not hasattr(self._of_thread, 'transforms'):
            # Transforms are written for worker processes, not for threads.
            self._of_thread.transforms = copy.deepcopy(self._transforms)
        path = annotation.info.get('seg_map_path')
        if path and os.path.exists(path):
            check_file(path)
        results = copy.deepcopy(annotation.info)
        for transform in self._of_thread.transforms:
            results = transform(results)
            if 'gt_seg_map' in results:
                labels = np.asarray(results['gt_seg_map'])
                if labels.ndim == 3 and labels.shape[-1] in COLOUR_CHANNELS:
                    _check_channels(labels.shape[-1])
                return count_values(labels)
        raise LookupError('no transform of the pipeline loads gt_seg_map')


class FileLoader(PipelineLoader):
    """``LoadAnnotations`` with Pillow, applied to the histogram."""

    def __init__(self, transform: LoadAnnotations, image_loader: Any) -> None:
        self._transform = transform
        self._is_local = {
            'seg_map_path': _reads_local_files(transform),
            'img_path': _reads_local_files(image_loader),
        }
        self._tables: dict[str, NDArray[np.uint8]] = {}

    def annotation(self, position: int, info: Info) -> Annotation:
        mapping = (
            f'LoadAnnotations(reduce_zero_label='
            f'{info.get("reduce_zero_label")}, '
            f'label_map={info.get("label_map")})'
        )
        files = (
            path if path and '://' not in path and is_local else None
            for key, is_local in self._is_local.items()
            for path in [info.get(key)]
        )
        return Annotation(position, info, self, mapping, *files)

    def load(self, annotation: Annotation) -> Label:
        if annotation.label_file is not None:
            check_file(annotation.label_file, is_label=True)
        path = annotation.info['seg_map_path']
        content = fileio.get(path, self._transform.backend_args)
        if content is None:  # the LMDB backend's answer to a missing key
            raise FileNotFoundError(path)
        if not content:
            raise OSError('the file is empty')
        label = decode(content)
        mapping = annotation.mapping
        if mapping not in self._tables:
            self._tables[mapping] = self._values_delivered(annotation.info)
        table = self._tables[mapping]
        delivered = np.bincount(table, label.stored, NUM_VALUES)
        return label._replace(delivered=delivered.astype(np.int64))

    def _values_delivered(self, info: Info) -> NDArray[np.uint8]:
        """The values that the transform maps 0 to 255 to, shape (256,)."""
        fileio.register_backend(ALL_VALUES, _AllValues, force=True)
        probe = copy.copy(self._transform)
        probe.backend_args = {'backend': ALL_VALUES}
        return probe({**info, 'seg_fields': []})['gt_seg_map'].ravel()


class _AllValues(fileio.LocalBackend):
    """A file backend whose only file is a label with each value once."""

    def get(self, filepath: object) -> bytes:
        values = np.arange(NUM_VALUES, dtype=np.uint8).reshape(16, 16)
        file = io.BytesIO()
        Image.fromarray(values).save(file, 'PNG')
        return file.getvalue()


def fastest_loader(transforms: list[Any]) -> PipelineLoader:
    """The fastest loader that delivers the labels of a pipeline."""
    image_loader = None
    for transform in transforms:
        if type(transform).__module__.split('.')[0] not in UPSTREAM_PACKAGES:
            break
        if type(transform) is LoadImageFromFile:
            image_loader = transform
        if type(transform) is LoadAnnotations:
            if transform.imdecode_backend == 'pillow':
                return FileLoader(transform, image_loader)
            break
    return PipelineLoader(transforms)


def _reads_local_files(transform: Any) -> bool:
    """Whether paths without a prefix are on this machine."""
    if transform is None:
        return False
    backend = fileio.get_file_backend(
        '', backend_args=transform.backend_args, enable_singleton=True
    )
    return isinstance(backend, fileio.LocalBackend)


def decode(content: bytes) -> Label:
    """Decode one file. Pillow's limit on pixels raises, as in training."""
    with Image.open(io.BytesIO(content)) as image:
        if image.format == 'EPS':
            raise NotAnIndexMapError('a PostScript program, which is not run')
        _check_channels(len(image.getbands()))
        if image.mode in ('L', 'P'):  # most labels; counted without a copy
            label = _count(image)
        else:
            label = count_values(np.asarray(image), wrap=True)
        is_lossy = image.format in LOSSY_FORMATS
        return label._replace(size=image.size, lossy=is_lossy)


def count_values(labels: NDArray, wrap: bool = False) -> Label:
    """The histogram of labels of any shape and type, fastest for uint8.

    With ``wrap``, non-negative integers are cast to uint8, as by
    ``LoadAnnotations``.
    """
    if labels.dtype == np.uint8:
        return _count(Image.fromarray(labels.reshape(1, -1)))
    if wrap and labels.dtype.kind != 'f' and labels.min(initial=0) >= 0:
        label = count_values(labels.astype(np.uint8))
        return label._replace(wrapped=bool(labels.max(initial=0) > 255))
    values, numbers = np.unique(labels, return_counts=True)
    if not (np.isfinite(values) & (values == np.rint(values))).all():
        raise NotAnIndexMapError('values that are not whole numbers')
    is_byte = (values >= 0) & (values < NUM_VALUES)
    counts = np.zeros(NUM_VALUES, dtype=np.int64)
    counts[values[is_byte].astype(np.int64)] = numbers[is_byte]
    outside = tuple(int(value) for value in values[~is_byte])
    return Label(counts, counts, outside=outside)


def _count(image: Image.Image) -> Label:
    counts = np.array(image.histogram(), dtype=np.int64)
    return Label(counts, counts)


def _check_channels(number: int) -> None:
    if number > 1:
        raise NotAnIndexMapError(f'{number} channels, not one class index')


def check_file(path: str, is_label: bool = False) -> None:
    """Raise if reading would block, or if a label would fill the memory.

    Links are followed; a device, a pipe or a folder would block.
    """
    status, limit = os.stat(path), Image.MAX_IMAGE_PIXELS
    if not stat.S_ISREG(status.st_mode):
        raise OSError('not a regular file')
    if status.st_size == 0:
        raise OSError('the file is empty')
    # Up to twice the limit Pillow only warns.
    largest = 2 * limit * BYTES_OF_WIDEST_PIXEL if limit else float('inf')
    if is_label and status.st_size > largest:
        raise OSError(f'{status.st_size} bytes, more than a label may have')


def explain(error: BaseException, path: str) -> Found:
    """The kind of a failure to load a label, and a line naming the file."""
    if isinstance(error, FileNotFoundError):
        return Problem.MISSING_LABEL, str(error.filename or path)
    if isinstance(error, Image.DecompressionBombError):
        return Problem.TOO_LARGE, f'{path}: {str(error).split(", could")[0]}'
    if isinstance(error, NotAnIndexMapError):
        return Problem.NOT_AN_INDEX_MAP, f'{path}: {error}'
    if isinstance(error, OSError | SyntaxError | EOFError):
        return Problem.UNREADABLE_LABEL, f'{path}: {_reason(error)}'
    return Problem.LOADING_FAILED, f'{path}: {type(error).__name__}: {error}'


def check_image(path: str, label_size: tuple[int, int] | None) -> Found | None:
    """What is wrong with an image file, as far as its header shows."""
    is_checked = False
    try:
        check_file(path)
        is_checked = True
        with Image.open(path) as image:
            size = image.size
            if label_size not in (None, size):
                orientation = image.getexif().get(EXIF_ORIENTATION)
                if orientation in EXIF_ROTATED_BY_90_DEGREES:
                    size = size[::-1]
    except FileNotFoundError:
        return Problem.MISSING_IMAGE, path
    except Image.DecompressionBombError:
        return None  # images may be large, and are not read with Pillow
    except LOADING_ERRORS as error:
        if is_checked and not path.lower().endswith(PILLOW_SUFFIXES):
            return None
        return Problem.UNREADABLE_IMAGE, f'{path}: {_reason(error)}'
    if label_size in (None, size):
        return None
    sizes = 'image {}x{}, label {}x{}'.format(*size, *label_size)
    return Problem.SIZE, f'{path}: {sizes}'


def _reason(error: BaseException) -> str:
    if isinstance(error, UnidentifiedImageError):
        return 'not an image file'  # Pillow's text holds a memory address
    return getattr(error, 'strerror', None) or str(error)
