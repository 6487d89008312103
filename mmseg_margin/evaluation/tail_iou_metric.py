"""mIoU of the head, the middle and the tail of the class distribution."""

from collections.abc import Sequence

import numpy as np
import torch
from mmengine.logging import MMLogger
from mmseg.evaluation import IoUMetric
from mmseg.registry import METRICS
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from mmseg_margin.functional.reference import iou_lower_bound

from .training_counts import TakesClassCounts


def split_by_frequency(class_counts: ArrayLike) -> dict[str, NDArray]:
    """Class indices of ``head``, ``middle`` and ``tail``.

    Classes are ranked by their pixels; the first third is the head and the
    last third the tail, each rounded to the nearest whole number.

    Example:
        >>> split_by_frequency([912, 49, 14, 16, 8])['tail'].tolist()
        [2, 4]
    """
    ranked = np.argsort(-np.asarray(class_counts, np.float64), kind='stable')
    third = round(len(ranked) / 3)
    cuts = [third, len(ranked) - third]
    names = ('head', 'middle', 'tail')
    return dict(zip(names, np.split(ranked, cuts), strict=True))


def class_iou(results: Sequence[Sequence[Tensor]]) -> NDArray:
    """IoU of each class in percent, (K,), nan where it does not occur.

    Args:
        results: Of each image what upstream's IoUMetric keeps: the areas of
            intersection, union, prediction and label, each (K,).
    """
    intersect, union, _, label = (
        torch.stack(areas).sum(0) for areas in zip(*results, strict=True)
    )
    iou = iou_lower_bound(label, label - intersect, union - label)
    return (100 * iou).numpy()


@METRICS.register_module()
class TailIoUMetric(TakesClassCounts, IoUMetric):
    """Upstream's IoUMetric with ``mIoU_head``, ``_middle`` and ``_tail``.

    Without class counts it warns and gives what IoUMetric gives.

    Example:
        >>> val_evaluator = dict(type='TailIoUMetric', iou_metrics=['mIoU'])
    """

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Upstream's metrics and, in percent, the mIoU of each third."""
        metrics = super().compute_metrics(results)
        if self.format_only:
            return metrics
        if self.class_counts is None:
            MMLogger.get_current_instance().warning(
                'TailIoUMetric has no class counts of the training set, so '
                'head, middle and tail are left out: give class_counts= or '
                "add dict(type='TrainingCountsHook') to custom_hooks."
            )
            return metrics
        iou = class_iou(results)
        thirds = split_by_frequency(self.counts_of(len(iou)))
        for name, members in thirds.items():
            if np.isfinite(iou[members]).any():
                metrics[f'mIoU_{name}'] = np.round(np.nanmean(iou[members]), 2)
        return metrics
