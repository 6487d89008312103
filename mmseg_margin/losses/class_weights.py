"""Class weights that are given, or follow from the label statistics."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mmseg_margin.errors import SettingError
from mmseg_margin.stats import ClassStats, check_weight_method, class_weights

from .validation import NoStatisticsError

ClassWeight = Sequence[float] | str | float | None


class ClassWeightedModule(nn.Module):
    """What ``ClassStatsHook`` tells about the classes, kept as buffers.

    Args:
        class_weight: One weight for each class; or ``'inverse'``,
            ``'sqrt'``, ``'median'``, ``'effective'``, or a power of the
            inverse frequency, computed from the label statistics that
            ``ClassStatsHook`` hands over; or None.
    """

    class_weight: Tensor

    def __init__(self, class_weight: ClassWeight = None) -> None:
        super().__init__()
        self.has_statistics = False
        self.weight_method: str | float | None = None
        self.register_buffer('class_weight', torch.empty(0), persistent=False)
        if isinstance(class_weight, (str, int, float)):
            check_weight_method('class_weight', class_weight)
            self.weight_method = class_weight
        elif class_weight is not None:
            self._set_class_weight(class_weight)

    @property
    def needs_statistics(self) -> bool:
        """Whether it cannot be computed without the data set's counts."""
        return self.weight_method is not None

    def expect_classes(self, num_classes: int) -> None:
        """Give the buffers their size before the statistics are there.

        Whoever copies the model before the training starts, as an average
        of the weights does, then has room for what the scan will find.
        """
        if self.needs_statistics and not self.has_statistics:
            self._make_room(num_classes)

    def _make_room(self, num_classes: int) -> None:
        if self.weight_method is not None:
            self.class_weight = self.class_weight.new_ones(num_classes)

    def set_class_stats(self, stats: ClassStats) -> None:
        """Take what was asked for from the statistics of a data set."""
        self.set_class_counts(stats.counts, stats.classes, stats.image_pixels)

    def set_class_counts(
        self,
        counts: Sequence[int],
        classes: Sequence[str] | None = None,
        image_pixels: Sequence[int] | None = None,
    ) -> None:
        """The same from the pixels of each class, and what else is known."""
        if self.weight_method is not None:
            self._set_class_weight(
                class_weights(counts, self.weight_method, image_pixels)
            )
        self.has_statistics = True

    def _set_class_weight(self, weights: Sequence[float]) -> None:
        tensor = torch.as_tensor(weights, dtype=torch.float32)
        if tensor.ndim != 1 or not (tensor.isfinite() & (tensor >= 0)).all():
            raise SettingError(
                'class_weight must be finite and not negative, one for each '
                f'class, got {list(weights)}.'
            )
        self.class_weight = tensor.to(self.class_weight.device)

    def check_classes(self, num_classes: int) -> None:
        """Raise where the statistics or the weights do not fit a head."""
        if self.needs_statistics and not self.has_statistics:
            raise NoStatisticsError(type(self).__name__)
        if len(self.class_weight) not in (0, num_classes):
            raise SettingError(
                f'class_weight has {len(self.class_weight)} numbers but the '
                f'head {num_classes} classes: give one for each class.'
            )
