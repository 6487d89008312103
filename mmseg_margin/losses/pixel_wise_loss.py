"""What all losses of pixels have in common: everything but the pixel's loss.

Class weights that are given or follow from the statistics, the average,
autocast, heads with one channel, and the checks.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from mmseg_margin.errors import SettingError
from mmseg_margin.functional import upsampled_stage
from mmseg_margin.functional.strips import PixelLosses, upsampled_sample
from mmseg_margin.stats import ClassStats, check_weight_method, class_weights

from .averaging import (
    PixelShares,
    check_reduction,
    pixel_shares,
    reduce_pixels,
)
from .validation import NoStatisticsError, check_labels, check_loss_name

# Every fourth pixel in both directions is enough to see the errors of a
# batch: neighbours hardly differ.
PIXEL_STRIDE = 4
ClassWeight = Sequence[float] | str | float | None


def two_class_scores(scores: Tensor) -> Tensor:
    """Scores (0, s) of a binary head, whose one channel is s."""
    if scores.shape[1] > 1:
        return scores
    return torch.cat([torch.zeros_like(scores), scores], 1)


class PixelWiseLoss(nn.Module):
    """The base of our losses; :meth:`pixel_losses` makes the difference.

    Args:
        class_weight: One weight for each class; or ``'inverse'``,
            ``'sqrt'``, ``'median'``, ``'effective'``, or a power of the
            inverse frequency, computed from the label statistics that
            ``ClassStatsHook`` hands over; or None.
        reduction: ``'none'``, ``'mean'`` or ``'sum'``.
        loss_weight: Factor of the loss.
        loss_name: Name in the log; it has to contain ``loss``.
        avg_non_ignore: Whether the mean is taken over the labelled pixels
            instead of over all.
        global_mean: Whether the mean is taken over the pixels of all ranks,
            so that the training does not depend on their number.
    """

    class_weight: Tensor

    def __init__(
        self,
        class_weight: ClassWeight = None,
        reduction: str = 'mean',
        loss_weight: float = 1.0,
        loss_name: str = 'loss_pixels',
        avg_non_ignore: bool = True,
        global_mean: bool = False,
    ) -> None:
        super().__init__()
        check_reduction(reduction)
        check_loss_name(loss_name)
        self.reduction = reduction
        self.loss_weight = loss_weight
        self._loss_name = loss_name
        self.avg_non_ignore = avg_non_ignore
        self.global_mean = global_mean
        # A GPU need not wait for a check of the labels in every step once
        # the whole data set has been checked.
        self.labels_checked = False
        self.has_statistics = False
        self.weight_method: str | float | None = None
        self.register_buffer('class_weight', torch.empty(0), persistent=False)
        if isinstance(class_weight, (str, int, float)):
            check_weight_method('class_weight', class_weight)
            self.weight_method = class_weight
        elif class_weight is not None:
            self._set_class_weight(class_weight)

    @property
    def loss_name(self) -> str:
        """The key of this loss in the log."""
        return self._loss_name

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
        self._derive(stats.counts, stats.classes, stats.image_pixels)

    def set_class_counts(
        self, counts: Sequence[int], classes: Sequence[str] | None = None
    ) -> None:
        """The same from the pixels of each class alone."""
        self._derive(counts, classes, None)

    def _derive(
        self,
        counts: Sequence[int],
        classes: Sequence[str] | None,
        image_pixels: Sequence[int] | None,
    ) -> None:
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

    def pixel_losses(
        self, scores: Tensor, label: Tensor, ignore_index: int
    ) -> Tensor:
        """(N, K, H, W) and (N, H, W) to (N, H, W), 0 where ignored."""
        raise NotImplementedError

    def strip_losses(
        self, sample: Callable[[], tuple[Tensor, Tensor]], ignore_index: int
    ) -> PixelLosses:
        """The same for the strips of a batch; ``sample`` looks at all of it.

        Args:
            sample: Gives the scores and labels of some of the pixels.
            ignore_index: The label of ignored pixels.
        """
        return lambda s, y: self.pixel_losses(s, y, ignore_index)

    def forward(
        self,
        cls_score: Tensor,
        label: Tensor,
        weight: Tensor | None = None,
        avg_factor: float | Tensor | None = None,
        ignore_index: int = 255,
        reduction_override: str | None = None,
        **kwargs,
    ) -> Tensor:
        """Scores (N, K, H, W), labels and weight (N, H, W)."""
        scores = two_class_scores(cls_score)
        self.check(scores, label, ignore_index)
        reduction = reduction_override or self.reduction
        with torch.autocast(scores.device.type, enabled=False):
            loss = self.pixel_losses(scores, label, ignore_index)
            shares = self._shares(
                label, ignore_index, weight, avg_factor, reduction
            )
            loss = reduce_pixels(loss, shares, reduction)
        return self.loss_weight * loss

    def fused_stage(
        self,
        low_scores: Tensor,
        label: Tensor,
        ignore_index: int,
        align_corners: bool,
    ) -> tuple[Tensor, Tensor]:
        """The loss of up-sampled scores, and how many pixels they hit.

        Scores (N, K, h, w) are up-sampled to the labels (N, H, W) piece by
        piece, so that they are never there at full size.
        """
        self.check(low_scores, label, ignore_index)
        with torch.autocast(low_scores.device.type, enabled=False):
            shares = self._shares(label, ignore_index)
            result = upsampled_stage(
                low_scores,
                label,
                self.strip_losses(
                    lambda: upsampled_sample(
                        low_scores, label, PIXEL_STRIDE, align_corners
                    ),
                    ignore_index,
                ),
                pixel_weight=shares.weights,
                ignore_index=ignore_index,
                align_corners=align_corners,
            )
            loss = self.loss_weight * result.loss / shares.divisor
        return loss, result.hits

    def _shares(
        self,
        label: Tensor,
        ignore_index: int,
        weight: Tensor | None = None,
        avg_factor: float | Tensor | None = None,
        reduction: str | None = None,
    ) -> PixelShares:
        return pixel_shares(
            label,
            weight,
            self.class_weight if len(self.class_weight) else None,
            reduction or self.reduction,
            avg_factor,
            ignore_index,
            self.avg_non_ignore,
            self.global_mean and self.training,
        )

    def check(self, scores: Tensor, label: Tensor, ignore_index: int) -> None:
        """Raise where the statistics or the labels do not fit the scores."""
        num_classes = scores.shape[1]
        if self.needs_statistics and not self.has_statistics:
            raise NoStatisticsError(type(self).__name__)
        if len(self.class_weight) not in (0, num_classes):
            raise SettingError(
                f'class_weight has {len(self.class_weight)} numbers but the '
                f'head {num_classes} classes: give one for each class.'
            )
        on_cpu = scores.device.type == 'cpu'
        if torch.compiler.is_compiling() or (
            self.labels_checked and not on_cpu
        ):
            return
        check_labels(label, num_classes, ignore_index)
