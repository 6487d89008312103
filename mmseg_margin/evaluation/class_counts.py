"""Training-set pixel counts for the metrics that depend on them."""

from collections.abc import Sequence
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from mmseg_margin.errors import SettingError
from mmseg_margin.stats import ClassStats

CountsSource = Sequence[int] | str | PathLike[str] | None


class TakesClassCounts:
    """For a metric that needs the class counts of the training set.

    They come from its ``class_counts`` argument (a list, or the JSON of a
    :class:`ClassStats`), else from a hook that calls the setter.
    """

    class_counts: NDArray[np.int64] | None = None

    def read_class_counts(self, source: CountsSource) -> None:
        """Take what the config gives, if it gives anything."""
        if isinstance(source, (str, PathLike)):
            self.set_class_counts(ClassStats.from_json(source).counts)
        elif source is not None:
            self.set_class_counts(source)

    def set_class_counts(self, counts: Sequence[int]) -> None:
        """Take labelled pixels per class of the training set, (K,)."""
        self.class_counts = np.asarray(counts, dtype=np.int64)

    @property
    def needs_class_counts(self) -> bool:
        """Whether nobody has given the counts yet."""
        return self.class_counts is None

    def counts_of(self, num_classes: int) -> NDArray[np.int64]:
        """The counts, if they are there and fit the evaluated data set."""
        if self.class_counts is None:
            raise SettingError(
                f'{type(self).__name__} has no class counts of the training '
                'set: give class_counts=, test a checkpoint that was trained '
                "with ClassStatsHook, or add dict(type='TrainingCountsHook') "
                'to custom_hooks.'
            )
        if len(self.class_counts) != num_classes:
            raise SettingError(
                f'class_counts has {len(self.class_counts)} entries, but the '
                f'data set has {num_classes} classes: count the training set '
                'of this config.'
            )
        return self.class_counts
