"""From the bytes of a label file to the 256-bin histogram of its values.

The values are those that mmseg's ``LoadAnnotations`` sees: Pillow decodes,
palettes give indices, wider integers wrap to uint8. Decoding cannot be made
faster here; what comes after it can, hence the shortcuts below.
"""

import io
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

GROUP = 8  # pixels looked at together, as one uint64
BLOCK = 1 << 16  # pixels looked at before their memory leaves the cache
SMALL_LABEL = 1 << 19  # below it, looking for runs costs more than it saves
MOSTLY_RUNS = 4  # at most one group in four may hold a change
NOT_WRITTEN = 165  # an unlikely label


class NotAnIndexMapError(ValueError):
    """The label file has several channels instead of one class index."""


class DecodedLabel(NamedTuple):
    """Histogram of shape (256,), (width, height), and whether values wrap."""

    histogram: NDArray[np.int64]
    size: tuple[int, int]
    wrapped: bool


class LabelDecoder:
    """Decodes label files; reuses its memory, so each thread needs its own."""

    def __init__(self) -> None:
        self._pixels = np.empty(0, dtype=np.uint8)

    def __call__(self, content: bytes) -> DecodedLabel:
        """Decode one file. Pillow's limit on pixels raises, as in training."""
        with _open(content) as image:
            if _is_plain_png(image):
                values = self._decode_in_place(image)
                if values is not None:
                    return DecodedLabel(histogram(values), image.size, False)
        with _open(content) as image:
            values, wrapped = _to_uint8(np.asarray(image))
            return DecodedLabel(histogram(values), image.size, wrapped)

    def _decode_in_place(self, image: Image.Image) -> NDArray[np.uint8] | None:
        """Let Pillow decode into our memory, which saves copying it out.

        None if that did not work: another Pillow may use memory of its own,
        and a damaged file may lack rows, which should be 0 but are not here.
        """
        size = image.width * image.height
        if self._pixels.size < size:
            self._pixels = np.empty(size, dtype=np.uint8)
        values = self._pixels[:size]
        last_row = values[-image.width :]
        last_row.fill(NOT_WRITTEN)
        target = Image.frombuffer(
            image.mode, image.size, values, 'raw', image.mode, 0, 1
        )
        image.im = target.im
        image.load()
        is_complete = image.im is target.im and (last_row != NOT_WRITTEN).any()
        return values if is_complete else None


def _open(content: bytes) -> Image.Image:
    """Look at the header, and refuse what must not or need not be decoded."""
    image = Image.open(io.BytesIO(content))
    if image.format == 'EPS':
        raise NotAnIndexMapError(
            'a PostScript program, which is not run to see what it draws'
        )
    if len(image.getbands()) > 1:
        raise NotAnIndexMapError(_channels(len(image.getbands())))
    return image


def _is_plain_png(image: Image.Image) -> bool:
    """Whether it is decoded row by row, to one byte for each pixel."""
    return (
        isinstance(image, PngImageFile)
        and image.mode in ('L', 'P')
        and 'interlace' not in image.info
        and bool(image.tile)  # there is none if the file ends too early
    )


def histogram(values: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Counts of the 256 values of a flat array, fast for label maps.

    Labels come in runs, so most groups of eight pixels hold one value, and
    so do the groups that follow up to the next group with a change in it.
    """
    whole = values.size // GROUP * GROUP
    if whole < SMALL_LABEL:
        return _count(values)
    mixed = np.flatnonzero(_has_change(values, whole // GROUP))
    if mixed.size > whole // GROUP // MOSTLY_RUNS:
        return _count(values)
    run_lengths = np.diff(mixed, prepend=-1) - 1
    run_values = values[(mixed - run_lengths) * GROUP]
    runs = np.bincount(run_values, weights=run_lengths, minlength=256)
    groups = values[:whole].view(np.uint64)
    return (
        GROUP * runs.astype(np.int64)
        + _count(groups[mixed].view(np.uint8))
        + np.bincount(values[whole:], minlength=256)
    )


def _has_change(
    values: NDArray[np.uint8], num_groups: int
) -> NDArray[np.bool_]:
    """Whether a pixel of the group differs from the next; True at the end."""
    has_change = np.empty(num_groups, dtype=bool)
    changes = np.empty(BLOCK, dtype=bool)
    for start in range(0, num_groups * GROUP, BLOCK):
        nexts = values[start + 1 : start + BLOCK + 1]
        these = values[start : start + nexts.size]
        np.not_equal(these, nexts, out=changes[: nexts.size])
        part = has_change[start // GROUP : (start + BLOCK) // GROUP]
        np.not_equal(changes.view(np.uint64)[: part.size], 0, out=part)
    has_change[-1] = True
    return has_change


def _count(values: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Count with four tables at once.

    One table stalls on runs, each increment waiting for the one before.
    Pillow keeps a table for each channel, so the values are shown to it as
    pixels of four channels.
    """
    whole = values.size // 4 * 4
    counts = np.bincount(values[whole:], minlength=256)
    if whole:
        pixels = Image.frombuffer(
            'RGBA', (whole // 4, 1), values[:whole], 'raw', 'RGBA', 0, 1
        )
        tables = np.array(pixels.histogram(), dtype=np.int64)
        counts = counts + tables.reshape(4, 256).sum(axis=0)
    return counts


def _to_uint8(array: NDArray) -> tuple[NDArray[np.uint8], bool]:
    """Any other pixel type, as ``LoadAnnotations`` casts it."""
    if array.ndim != 2:
        raise NotAnIndexMapError(_channels(array.shape[2]))
    values = array.astype(np.uint8).ravel()
    return values, bool((values != array.ravel()).any())


def _channels(number: int) -> str:
    return f'{number} channels instead of one class index'
