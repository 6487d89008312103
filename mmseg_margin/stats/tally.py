"""The numbers of a scan, kept so that one all-reduce can add them up."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

NUM_VALUES = 256


def _zeros() -> NDArray[np.int64]:
    return np.zeros(NUM_VALUES, dtype=np.int64)


@dataclass
class Tally:
    """Sums over label files, each of shape (256,), one entry a label value.

    ``pixels``, ``images`` and ``image_pixels`` are by delivered value, that
    is after the loading transform; ``stored`` by the value in the file.
    """

    pixels: NDArray[np.int64] = field(default_factory=_zeros)
    images: NDArray[np.int64] = field(default_factory=_zeros)
    image_pixels: NDArray[np.int64] = field(default_factory=_zeros)
    stored: NDArray[np.int64] = field(default_factory=_zeros)

    def add_label(
        self,
        delivered: NDArray[np.int64],
        stored: NDArray[np.int64],
        is_class: NDArray[np.bool_],
    ) -> None:
        """Add the histograms of one file; ``is_class`` of shape (256,)."""
        self.pixels += delivered
        self.images += delivered > 0
        self.image_pixels[delivered > 0] += delivered[is_class].sum()
        self.stored += stored

    def add(self, other: 'Tally') -> None:
        """Add another part of the scan."""
        self.pixels += other.pixels
        self.images += other.images
        self.image_pixels += other.image_pixels
        self.stored += other.stored

    def to_array(self) -> NDArray[np.int64]:
        """All sums as one array, shape (4, 256)."""
        return np.stack(
            [self.pixels, self.images, self.image_pixels, self.stored]
        )

    @classmethod
    def from_array(cls, array: NDArray[np.int64]) -> 'Tally':
        """The inverse of :meth:`to_array`."""
        return cls(*array)


@dataclass(frozen=True)
class LabelRange:
    """Which values are labels; ``num_classes=None`` if that is not known."""

    num_classes: int | None
    ignore_index: int | None = 255

    @cached_property
    def is_class(self) -> NDArray[np.bool_]:
        """Which of the 256 values are classes, shape (256,)."""
        values = np.arange(NUM_VALUES)
        return (values < (self.num_classes or NUM_VALUES)) & ~self.is_ignored

    @cached_property
    def is_ignored(self) -> NDArray[np.bool_]:
        """Which of the 256 values is the ignore index, shape (256,)."""
        return np.arange(NUM_VALUES) == self.ignore_index
