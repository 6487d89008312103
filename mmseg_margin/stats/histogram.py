"""From the bytes of a label file to the 256-bin histogram of its values.

The values are those that mmseg's ``LoadAnnotations`` sees: Pillow decodes,
palettes give indices, wider integers wrap to uint8.
"""

import io
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

from mmseg_margin.compat import decode_into

NUM_VALUES = 256
GROUP = 8  # pixels looked at together, as one uint64
BLOCK = 1 << 16  # pixels looked at before their memory leaves the cache
SMALL_LABEL = 1 << 19  # below it, looking for runs costs more than it saves
MOSTLY_RUNS = 4  # at most one group in four may hold a change
LOSSY_FORMATS = ('JPEG', 'MPO')

Histogram = NDArray[np.int64]


class NotAnIndexMapError(ValueError):
    """The label does not hold one class index for each pixel."""


class DecodedLabel(NamedTuple):
    """What a label file holds.

    Args:
        histogram: Pixels of each value from 0 to 255, shape (256,).
        size: Width and height; None if not known.
        wrapped: Whether values above 255 were counted modulo 256.
        outside: Other values, which were not counted.
        lossy: Whether the format changes values when it is written.
    """

    histogram: Histogram
    size: tuple[int, int] | None = None
    wrapped: bool = False
    outside: tuple[int, ...] = ()
    lossy: bool = False


def decode(content: bytes) -> DecodedLabel:
    """Decode one file. Pillow's limit on pixels raises, as in training."""
    with Image.open(io.BytesIO(content)) as image:
        if image.format == 'EPS':
            raise NotAnIndexMapError(
                'a PostScript program, which is not run to see what it draws'
            )
        check_channels(len(image.getbands()))
        label = count_values(_pixels_of(image), wrap=True)
        return label._replace(
            size=image.size, lossy=image.format in LOSSY_FORMATS
        )


def count_values(labels: NDArray, wrap: bool = False) -> DecodedLabel:
    """The histogram of labels of any shape and type, fastest for bytes.

    With ``wrap`` they are cast as ``LoadAnnotations`` does, if what comes of
    it is defined.
    """
    if labels.dtype == np.uint8:
        return DecodedLabel(histogram(np.ascontiguousarray(labels).ravel()))
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
    return DecodedLabel(counts, outside=outside)


def check_channels(number: int) -> None:
    """Raise unless there is a single one."""
    if number > 1:
        raise NotAnIndexMapError(
            f'{number} channels instead of one class index'
        )


def histogram(values: NDArray[np.uint8]) -> Histogram:
    """Counts of the 256 values of a flat array, fast for label maps.

    Labels come in runs, so most groups of eight pixels hold one value, and
    so do the groups that follow up to the next group with a change in it.
    """
    num_groups = values.size // GROUP
    whole = num_groups * GROUP
    if whole < SMALL_LABEL:
        return _count(values)
    mixed = np.flatnonzero(_has_change(values, num_groups))
    if mixed.size > num_groups // MOSTLY_RUNS:
        return _count(values)
    run_lengths = np.diff(mixed, prepend=-1) - 1
    run_values = values[(mixed - run_lengths) * GROUP]
    runs = np.bincount(run_values, run_lengths, NUM_VALUES)
    groups = values[:whole].view(np.uint64)
    return (
        GROUP * runs.astype(np.int64)
        + _count(groups[mixed].view(np.uint8))
        + _count(values[whole:])
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


def _pixels_of(image: Image.Image) -> NDArray:
    # There is no tile if the file ends too early.
    is_whole_png = isinstance(image, PngImageFile) and image.tile
    if is_whole_png and image.mode in ('L', 'P'):
        pixels = np.zeros(image.width * image.height, dtype=np.uint8)
        if decode_into(pixels, image):
            return pixels
    return np.asarray(image)


def _count(values: NDArray[np.uint8]) -> Histogram:
    """Count with four tables at once.

    One table stalls on runs, each increment waiting for the one before.
    Pillow keeps a table for each channel, so the values are shown to it as
    pixels of four channels.
    """
    whole = values.size // 4 * 4
    counts = np.bincount(values[whole:], minlength=NUM_VALUES)
    if whole:
        pixels = Image.frombuffer(
            'RGBA', (whole // 4, 1), values[:whole], 'raw', 'RGBA', 0, 1
        )
        tables = np.array(pixels.histogram(), dtype=np.int64)
        counts = counts + tables.reshape(4, NUM_VALUES).sum(axis=0)
    return counts
