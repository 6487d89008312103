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
SMALL_LABEL = 1 << 19  # below it, looking for runs costs more than it saves
MOSTLY_RUNS = 4  # at most one group in four may hold a change


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
        self._scratch = np.empty(0, dtype=bool)

    def __call__(self, content: bytes) -> DecodedLabel:
        """Decode one file. Pillow's limit on pixels raises, as in training."""
        with Image.open(io.BytesIO(content)) as image:
            if _is_plain_png(image):
                values, wrapped = self._decode_in_place(image), False
            else:
                values, wrapped = _to_uint8(np.asarray(image))
            counts = histogram(values, self._scratch)
            return DecodedLabel(counts, image.size, wrapped)

    def _decode_in_place(self, image: Image.Image) -> NDArray[np.uint8]:
        """Let Pillow decode into our memory, which saves copying it out."""
        size = image.width * image.height
        if self._pixels.size < size:
            self._pixels = np.empty(size, dtype=np.uint8)
            self._scratch = np.empty(size, dtype=bool)
        values = self._pixels[:size]
        values.fill(0)  # damaged files may leave pixels out, which are then 0
        target = Image.frombuffer(
            image.mode, image.size, values, 'raw', image.mode, 0, 1
        )
        image.im = target.im
        image.load()
        # Pillow keeps an image core that fits; should it not, copy after all.
        return values if image.im is target.im else np.asarray(image).ravel()


def _is_plain_png(image: Image.Image) -> bool:
    return (
        isinstance(image, PngImageFile)
        and image.mode in ('L', 'P')
        and bool(image.tile)  # there is none if the file ends too early
    )


def histogram(
    values: NDArray[np.uint8], scratch: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """Counts of the 256 values of a flat array, fast for label maps.

    Labels come in runs, so most groups of eight pixels hold one value, and
    so do the groups that follow up to the next group with a change in it.

    Args:
        values: Shape (P,).
        scratch: Memory to work in, of shape (P,) or larger.
    """
    whole = values.size // GROUP * GROUP
    if whole < SMALL_LABEL:
        return _count(values)
    body = values[:whole]
    if scratch is None or scratch.size < whole:
        scratch = np.empty(whole, dtype=bool)
    changes = scratch[:whole]
    np.not_equal(body[1:], body[:-1], out=changes[:-1])
    changes[-1] = True  # the last group ends the last run
    mixed = np.flatnonzero(changes.view(np.uint64) != 0)
    if mixed.size > whole // GROUP // MOSTLY_RUNS:
        return _count(values)
    run_lengths = np.diff(mixed, prepend=-1) - 1
    run_values = body[(mixed - run_lengths) * GROUP]
    runs = np.bincount(run_values, weights=run_lengths, minlength=256)
    return (
        GROUP * runs.astype(np.int64)
        + _count(body.view(np.uint64)[mixed].view(np.uint8))
        + np.bincount(values[whole:], minlength=256)
    )


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
        raise NotAnIndexMapError(
            f'{array.shape[2]} channels instead of one class index'
        )
    values = array.astype(np.uint8).ravel()
    return values, bool((values != array.ravel()).any())
