"""From the bytes of a label file to the 256-bin histogram of its values.

The values are those that mmseg's ``LoadAnnotations`` sees: Pillow decodes,
palettes give indices, wider integers wrap to uint8.
"""

import io
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

NUM_VALUES = 256
GROUP = 8  # pixels compared together, as one uint64
SMALL_LABEL = 1 << 17  # below it, looking for runs costs more than it saves
MOSTLY_RUNS = 4  # at most one group in four may differ from the one before
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
        if image.mode in ('L', 'P'):
            label = DecodedLabel(histogram(_pixels_of(image)))
        else:
            label = _cast_to_bytes(np.asarray(image))
        return label._replace(
            size=image.size, lossy=image.format in LOSSY_FORMATS
        )


def histogram_of_any_type(labels: NDArray) -> DecodedLabel:
    """The histogram of labels of any shape and type; bytes are not needed."""
    if labels.dtype == np.uint8:
        return DecodedLabel(histogram(np.ascontiguousarray(labels).ravel()))
    values, pixels = np.unique(labels, return_counts=True)
    if not (np.isfinite(values) & (values == np.rint(values))).all():
        raise NotAnIndexMapError('values that are not whole numbers')
    is_byte = (values >= 0) & (values < NUM_VALUES)
    counts = np.zeros(NUM_VALUES, dtype=np.int64)
    counts[values[is_byte].astype(np.int64)] = pixels[is_byte]
    outside = tuple(int(value) for value in values[~is_byte])
    return DecodedLabel(counts, outside=outside)


def _cast_to_bytes(pixels: NDArray) -> DecodedLabel:
    """As ``LoadAnnotations`` casts them, if what comes of it is defined."""
    if pixels.dtype.kind == 'f' or pixels.min(initial=0) < 0:
        return histogram_of_any_type(pixels)
    counts = histogram(pixels.astype(np.uint8).ravel())
    return DecodedLabel(
        counts, wrapped=bool(pixels.max(initial=0) >= NUM_VALUES)
    )


def check_channels(number: int) -> None:
    """Raise unless there is a single one."""
    if number > 1:
        raise NotAnIndexMapError(
            f'{number} channels instead of one class index'
        )


def histogram(values: NDArray[np.uint8]) -> Histogram:
    """Counts of the 256 values of a flat array, fast for label maps.

    Labels come in runs, so that most groups of eight pixels equal the group
    before, and need not be looked at one by one.
    """
    groups = values[: values.size // GROUP * GROUP].view(np.uint64)
    if values.size < SMALL_LABEL:
        return _count(values)
    last_of_run = np.append(
        np.flatnonzero(groups[1:] != groups[:-1]), groups.size - 1
    )
    if last_of_run.size > groups.size // MOSTLY_RUNS:
        return _count(values)
    different = groups[last_of_run]
    counts = _count(different.view(np.uint8))
    counts += _count(values[groups.size * GROUP :])
    repeats = np.diff(last_of_run, prepend=-1) - 1
    repeated = np.flatnonzero(repeats)
    for column in different[repeated].view(np.uint8).reshape(-1, GROUP).T:
        again = np.bincount(column, repeats[repeated], NUM_VALUES)
        counts += again.astype(np.int64)
    return counts


def _pixels_of(image: Image.Image) -> NDArray[np.uint8]:
    """The bytes of a picture, at a fraction of the cost of np.asarray."""
    pixels = np.empty(image.width * image.height, dtype=np.uint8)
    target = Image.frombuffer(
        image.mode, image.size, pixels, 'raw', image.mode, 0, 1
    )
    target.readonly = 0  # else pasting would make a copy of the target
    target.paste(image)
    return pixels


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
