"""What can be wrong with single files: how it is found and added up."""

import os
import stat
import struct
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from PIL import Image, UnidentifiedImageError

FILES_SHOWN = 10
# What a bad file makes Pillow, a file backend or mmseg's transforms raise.
# Anything else is a fault of the code and keeps its traceback.
LOADING_ERRORS = (
    *(AssertionError, EOFError, LookupError, MemoryError, OSError),
    *(OverflowError, SyntaxError, TypeError, ValueError),
    *(Image.DecompressionBombError, struct.error, zlib.error),
)
# cv2 and tifffile may read other suffixes though Pillow cannot.
PILLOW_SUFFIXES = ('.bmp', '.jpeg', '.jpg', '.png')
BYTES_OF_WIDEST_PIXEL = 4
EXIF_ORIENTATION = 0x0112
EXIF_ROTATED_BY_90_DEGREES = range(5, 9)
Size = tuple[int, int]
EXPORT_AGAIN = 'copy or export these files again'


class NotAnIndexMapError(ValueError):
    """The label does not hold one class index for each pixel."""


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


@dataclass
class ProblemFiles:
    """Files with one problem: number, first lines, and values by files."""

    count: int = 0
    first: list[tuple[int, str]] = field(default_factory=list)
    values: Counter[int] = field(default_factory=Counter)


class Problems(dict[Problem, ProblemFiles]):
    """The files of a data set by what is wrong with them."""

    def note(
        self, place: int, what: Problem, text: str, values: Iterable[int] = ()
    ) -> None:
        """Note one file; ``text`` names it and says what is wrong."""
        self.add({what: ProblemFiles(1, [(place, text)], Counter(values))})

    def add(self, others: dict[Problem, ProblemFiles]) -> None:
        """Add the problems of another part of the scan."""
        for what, other in others.items():
            files = self.setdefault(what, ProblemFiles())
            files.count += other.count
            # By position in the data set: the same ten on any number of ranks.
            files.first = sorted(files.first + other.first)[:FILES_SHOWN]
            files.values.update(other.values)


def check_regular(path: str) -> int:
    """The size in bytes; raises for anything that would block a reader.

    Links are followed; a device, a pipe or a folder is not a label.
    """
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError('not a regular file')
    if status.st_size == 0:
        raise OSError('the file is empty')
    return status.st_size


def check_label_file(path: str) -> None:
    """Raise for a file that would block a reader or fill the memory."""
    size, limit = check_regular(path), Image.MAX_IMAGE_PIXELS
    # Up to twice the limit Pillow only warns.
    if limit and size > 2 * limit * BYTES_OF_WIDEST_PIXEL:
        raise OSError(f'{size} bytes, more than a label may have')


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


def check_image(path: str, label_size: Size | None) -> Found | None:
    """What is wrong with an image file, as far as its header shows."""
    try:
        check_regular(path)
    except FileNotFoundError:
        return Problem.MISSING_IMAGE, path
    except OSError as error:
        return Problem.UNREADABLE_IMAGE, f'{path}: {_reason(error)}'
    try:
        with Image.open(path) as image:
            size = image.size
            if label_size in (None, size):
                return None
            orientation = image.getexif().get(EXIF_ORIENTATION)
            if orientation in EXIF_ROTATED_BY_90_DEGREES:
                size = size[::-1]
    except Image.DecompressionBombError:
        return None  # images may be large, and are not read with Pillow
    except LOADING_ERRORS as error:
        if not path.lower().endswith(PILLOW_SUFFIXES):
            return None
        return Problem.UNREADABLE_IMAGE, f'{path}: {_reason(error)}'
    if label_size == size:
        return None
    sizes = 'image {}x{}, label {}x{}'.format(*size, *label_size)
    return Problem.SIZE, f'{path}: {sizes}'


def _reason(error: BaseException) -> str:
    if isinstance(error, UnidentifiedImageError):
        return 'not an image file'  # Pillow's text holds a memory address
    return getattr(error, 'strerror', None) or str(error)
