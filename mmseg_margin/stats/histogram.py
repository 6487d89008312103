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
        if image.mode in ('L', 'P'):  # most labels, which are not copied
            label = _count(image)
        else:
            label = count_values(np.asarray(image), wrap=True)
        return label._replace(
            size=image.size, lossy=image.format in LOSSY_FORMATS
        )


def count_values(labels: NDArray, wrap: bool = False) -> DecodedLabel:
    """The histogram of labels of any shape and type, fastest for bytes.

    With ``wrap`` they are cast as ``LoadAnnotations`` does, if what comes of
    it is defined.
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
    return DecodedLabel(counts, outside=outside)


def check_channels(number: int) -> None:
    """Raise unless there is a single one."""
    if number > 1:
        raise NotAnIndexMapError(
            f'{number} channels instead of one class index'
        )


def _count(image: Image.Image) -> DecodedLabel:
    return DecodedLabel(np.array(image.histogram(), dtype=np.int64))
