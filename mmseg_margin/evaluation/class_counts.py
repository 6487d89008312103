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

    Args:
        class_counts: Labelled pixels of the training set: a list or the path
            to a ClassStats JSON. None: a hook calls the setter.
        kwargs: Those of the metric.
    """

    class_counts: NDArray[np.int64] | None = None

    def __init__(self, class_counts: CountsSource = None, **kwargs) -> None:
        super().__init__(**kwargs)
        if isinstance(class_counts, (str, PathLike)):
            class_counts = ClassStats.from_json(class_counts).counts
        if class_counts is not None:
            self.set_class_counts(class_counts)

    def set_class_counts(self, counts: Sequence[int]) -> None:
        """Take labelled pixels per class of the training set, (K,)."""
        self.class_counts = np.asarray(counts, dtype=np.int64)

    @property
    def needs_class_counts(self) -> bool:
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
