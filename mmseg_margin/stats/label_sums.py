"""The numbers of a scan, kept so that one all-reduce can add them up."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .histogram import NUM_VALUES, Histogram


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


@dataclass(frozen=True)
class LabelSums:
    """Sums over label files, one column for each of the 256 values.

    The rows are pixels, images, and labelled pixels of those images, by
    delivered value, that is after the loading transform; and pixels by the
    value in the file.
    """

    rows: NDArray[np.int64] = field(
        default_factory=lambda: np.zeros((4, NUM_VALUES), dtype=np.int64)
    )

    def add_label(
        self, delivered: Histogram, stored: Histogram, labels: LabelRange
    ) -> None:
        """Add the histograms of one file."""
        pixels, images, image_pixels, stored_pixels = self.rows
        is_shown = delivered > 0
        pixels += delivered
        images += is_shown
        image_pixels[is_shown] += delivered[labels.is_class].sum()
        stored_pixels += stored

    def add(self, other: 'LabelSums') -> None:
        """Add another part of the scan."""
        self.rows[:] += other.rows

    @property
    def stored_values(self) -> list[int]:
        """The values that occur in the files."""
        return np.flatnonzero(self.rows[3]).tolist()
