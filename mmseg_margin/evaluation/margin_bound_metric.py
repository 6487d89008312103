"""The IoU lower bound of the paper on any labelled split."""

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import torch
from mmengine.dist import get_dist_info
from mmengine.evaluator import BaseMetric
from mmengine.logging import MMLogger
from mmseg.registry import METRICS
from numpy.typing import NDArray
from prettytable import PrettyTable
from torch import Tensor

from mmseg_margin.errors import SettingError
from mmseg_margin.functional import OffsetSettings
from mmseg_margin.functional.margins import class_gaps
from mmseg_margin.functional.reference import (
    iou_lower_bound,
    rho_margin_loss,
    top_two,
)

from .tail_iou_metric import class_scalars
from .training_counts import TakesClassCounts


class Row(IntEnum):
    """Rows of the sums over pixels, (6, K); those of images are added."""

    LABELLED = 0  # pixels of class k
    PREDICTED = 1  # pixels whose top score is that of class k
    CORRECT = 2  # pixels that are both
    LOSS_K0 = 3  # sum of phi_{rho_k0}(lambda_ik) over the pixels of class k
    LOSS_0K = 4  # sum of phi_{rho_0k}(-lambda_ik) over the other pixels
    INSIDE = 5  # pixels on the right side of class k by less than its offset


def margin_sums(
    scores: Tensor, labels: Tensor, rho_0k: Tensor, rho_k0: Tensor
) -> Tensor:
    """Sums of one image over its pixels.

    From scores (K, P) in floating point, labels (P,) in [0, K) and the offsets
    of Algorithm 1, (K,) each.
    """
    # A tiny offset has the loss of an offset of 0 (absent_class='zero').
    tiny = torch.finfo(scores.dtype).tiny
    rho_0k, rho_k0 = rho_0k.clamp_min(tiny), rho_k0.clamp_min(tiny)
    top, second = top_two(scores)
    sums = scores.new_zeros((len(Row), len(scores)), dtype=torch.float64)
    unassigned = torch.ones_like(labels, dtype=torch.bool)
    # One class at a time needs memory for P pixels, not for P x K.
    for k, score in enumerate(scores):
        is_label = labels == k
        predicted = (score == top) & unassigned  # the first class of a tie
        unassigned &= ~predicted
        margin = score - torch.where(score == top, second, top)  # Eq. 8
        signed = torch.where(is_label, margin, -margin)
        rho = torch.where(is_label, rho_k0[k], rho_0k[k])
        loss = rho_margin_loss(signed, rho)
        sums[Row.LABELLED, k] = is_label.sum()
        sums[Row.PREDICTED, k] = predicted.sum()
        sums[Row.CORRECT, k] = (predicted & is_label).sum()
        sums[Row.LOSS_K0, k] = (loss * is_label).sum(dtype=torch.float64)
        sums[Row.LOSS_0K, k] = (loss * ~is_label).sum(dtype=torch.float64)
        sums[Row.INSIDE, k] = ((signed > 0) & (signed < rho)).sum()
    return sums


def bound_scores(sums: Tensor) -> dict[str, NDArray]:
    """Per class, shape (K,): ``iou``, ``bound`` (Eq. 11) and ``inside``.

    A class that is neither labelled nor predicted has no IoU and no bound
    (NaN). ``inside`` is a fraction of all labelled pixels.
    """
    labelled, predicted, correct, loss_k0, loss_0k, inside = sums
    iou = iou_lower_bound(labelled, labelled - correct, predicted - correct)
    bound = iou_lower_bound(labelled, loss_k0, loss_0k)
    return {
        'iou': iou.numpy(),
        'bound': torch.where(iou.isnan(), iou, bound).numpy(),
        'inside': (inside / labelled.sum()).numpy(),
    }


@METRICS.register_module()
class MarginBoundMetric(TakesClassCounts, BaseMetric):
    """IoU, its lower bound (Eq. 11), and the pixels between the two.

    Logs a table of the classes (also in ``class_scores``, as fractions) and
    returns in percent the means ``mIoU``, ``mIoU_bound``, ``inside`` (pixels
    on the right side of a class by less than its offset) and ``eps`` of
    Theorem 1, where it is defined, and ``IoU/<class>`` of every class. Memory
    does not depend on the number of images.

    Args:
        tau, upsilon, largest_offset, absent_class: As in the loss.
        complexity: ``F`` of Theorem 1. With Algorithm 1's offsets eps is
            defined for F < tau / (4 K) only. None: no eps.
        ignore_index: Label that is not evaluated.
        kwargs: Those of TakesClassCounts and of BaseMetric.

    Example:
        >>> test_evaluator = [
        ...     dict(type='IoUMetric', iou_metrics=['mIoU']),
        ...     dict(type='MarginBoundMetric', tau=10, upsilon=1)]
    """

    default_prefix = 'margin'

    def __init__(
        self,
        tau: float | None = None,
        upsilon: float = 1.0,
        complexity: float | None = None,
        absent_class: str = 'error',
        largest_offset: float | None = None,
        ignore_index: int = 255,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        self.offset_settings = OffsetSettings(
            tau, upsilon, largest_offset, absent_class
        )
        self.complexity = complexity
        self.ignore_index = ignore_index
        self.class_scores: dict[str, np.ndarray] = {}
        self.reset()

    def reset(self) -> None:
        """Forget all images."""
        self._sums: Tensor | float = 0.0
        self._last: Tensor | float = 0.0
        self._num_images = 0

    @property
    def class_names(self) -> Sequence[str]:
        """Names of the K classes of the evaluated data set."""
        return (self.dataset_meta or {})['classes']

    def offsets(self) -> tuple[np.ndarray, np.ndarray]:
        """``rho_0k`` and ``rho_k0`` of the training set, each (K,)."""
        counts = self.counts_of(len(self.class_names))
        return self.offset_settings.offsets(counts, self.class_names)

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        """Add the sums of each image's scores, (K, H, W)."""
        offsets = [torch.tensor(rho) for rho in self.offsets()]
        for sample in data_samples:
            scores = sample['seg_logits']['data'].float()
            labels = sample['gt_sem_seg']['data'].squeeze(0).to(scores.device)
            kept = labels != self.ignore_index
            scores, labels = scores[:, kept], labels[kept]
            self._check(scores, labels)
            on_device = [rho.to(scores) for rho in offsets]
            self._sums = self._sums + self._last
            self._last = margin_sums(scores, labels, *on_device).cpu()
            self._num_images += 1

    def _check(self, scores: Tensor, labels: Tensor) -> None:
        num_classes = len(self.class_names)
        if len(scores) != num_classes:
            raise SettingError(
                f'MarginBoundMetric needs a score for each of the '
                f'{num_classes} classes, got {len(scores)}: a head with one '
                'sigmoid output has no margin between classes.'
            )
        if labels.numel() and labels.max() >= num_classes:
            raise SettingError(
                f'Label {int(labels.max())} is neither one of the '
                f'{num_classes} classes nor ignore_index='
                f'{self.ignore_index}: check the label mapping.'
            )

    def evaluate(self, size: int) -> dict:
        """Scores of the ``size`` images of the data set, over all ranks."""
        rank, world_size = get_dist_info()
        # The sampler pads with repeated images, at most one per rank, which
        # is the last one of that rank.
        repeated = (self._num_images - 1) * world_size + rank >= size
        self.results = [self._sums + (0.0 if repeated else self._last)]
        self.reset()
        return super().evaluate(world_size)

    def compute_metrics(self, results: list[Tensor]) -> dict[str, float]:
        """Scores in percent, from the sums of each rank."""
        table = bound_scores(sum(results, torch.zeros(())))
        means = {
            'mIoU': np.nanmean(table['iou']),
            'mIoU_bound': np.nanmean(table['bound']),
            'inside': table['inside'].mean(),
        }
        counts = self.counts_of(len(self.class_names))
        if self.complexity is not None:
            gaps = class_gaps(counts, *self.offsets(), self.complexity)
            table['eps'] = gaps
            if np.isfinite(gaps).all():
                means['eps'] = gaps.mean()
        self.class_scores = table
        shown = PrettyTable()
        shown.add_column('Class', list(self.class_names))
        for name, values in table.items():
            shown.add_column(name, [f'{100 * value:.4f}' for value in values])
        tau = self.offset_settings.tau_for(counts)
        upsilon = self.offset_settings.upsilon
        MMLogger.get_current_instance().info(
            f'IoU and its lower bound in percent, offsets with tau={tau:g} '
            f'and upsilon={upsilon:g}:\n{shown}'
        )
        per_class = class_scalars(self.class_names, 100 * table['iou'])
        return {k: float(100 * v) for k, v in means.items()} | per_class
