"""What is wrong with one file, in words that fit a report."""

import os
import stat
import struct
import zlib

from PIL import Image, UnidentifiedImageError

from .histogram import NotAnIndexMapError
from .problems import Kind

# What a bad file makes Pillow, a file backend or mmseg's transforms raise.
# Anything else is a fault of the code and keeps its traceback.
LOADING_ERRORS = (
    AssertionError,
    EOFError,
    Image.DecompressionBombError,
    LookupError,
    MemoryError,
    OSError,
    OverflowError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    zlib.error,
)
# Other suffixes may be read by cv2 or tifffile though Pillow cannot.
PILLOW_SUFFIXES = ('.bmp', '.jpeg', '.jpg', '.png')
BYTES_OF_WIDEST_PIXEL = 4
EXIF_ORIENTATION = 0x0112
EXIF_LIES_ON_ITS_SIDE = range(5, 9)
Size = tuple[int, int]


def check_regular(path: str) -> int:
    """The size in bytes; raises for what would block if it were read.

    Links are followed; a device, a pipe or a folder is no label.
    """
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError('not a regular file')
    if status.st_size == 0:
        raise OSError('the file is empty')
    return status.st_size


def check_label_file(path: str) -> None:
    """Raise for what would block or fill the memory if it were read."""
    size, limit = check_regular(path), Image.MAX_IMAGE_PIXELS
    # Up to twice the limit Pillow only warns.
    if limit and size > 2 * limit * BYTES_OF_WIDEST_PIXEL:
        raise OSError(f'{size} bytes, more than a label may have')


def explain(error: BaseException, path: str) -> tuple[Kind, str]:
    """The kind of a failure to load a label, and a line naming the file."""
    if isinstance(error, FileNotFoundError):
        return Kind.MISSING_LABEL, str(error.filename or path)
    if isinstance(error, Image.DecompressionBombError):
        return Kind.TOO_LARGE, f'{path}: {str(error).split(", could")[0]}'
    if isinstance(error, NotAnIndexMapError):
        return Kind.NOT_AN_INDEX_MAP, f'{path}: {error}'
    if isinstance(error, OSError | SyntaxError | EOFError):
        return Kind.UNREADABLE_LABEL, f'{path}: {_reason(error)}'
    name = type(error).__name__
    return Kind.LOADING_FAILED, f'{path}: {name}: {error}'


def check_image(path: str, label_size: Size | None) -> tuple[Kind, str] | None:
    """What the header of an image file says against it, if anything."""
    try:
        check_regular(path)
    except FileNotFoundError:
        return Kind.MISSING_IMAGE, path
    except OSError as error:
        return Kind.UNREADABLE_IMAGE, f'{path}: {_reason(error)}'
    try:
        with Image.open(path) as image:
            size = image.size
            if label_size in (None, size):
                return None
            if image.getexif().get(EXIF_ORIENTATION) in EXIF_LIES_ON_ITS_SIDE:
                size = size[::-1]
    except Image.DecompressionBombError:
        return None  # images may be large, and are not read with Pillow
    except LOADING_ERRORS as error:
        if not path.lower().endswith(PILLOW_SUFFIXES):
            return None
        return Kind.UNREADABLE_IMAGE, f'{path}: {_reason(error)}'
    if label_size == size:
        return None
    return Kind.SIZE, (
        f'{path}: image {_times(size)}, label {_times(label_size)}'
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, UnidentifiedImageError):
        return 'not an image file'  # Pillow's text holds a memory address
    return getattr(error, 'strerror', None) or str(error)


def _times(size: Size | None) -> str:
    return 'x'.join(str(side) for side in size or ())
