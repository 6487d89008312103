"""IoU per class, and mIoU of frequent, middle and rare classes."""

from collections.abc import Sequence

import numpy as np
import torch
from mmengine.logging import MMLogger
from mmseg.evaluation import IoUMetric
from mmseg.registry import METRICS
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from mmseg_margin.functional.reference import iou_lower_bound
from mmseg_margin.terminal import printable

from .training_counts import TakesClassCounts


def split_by_frequency(class_counts: ArrayLike) -> dict[str, NDArray]:
    """Class indices of ``head``, ``middle`` and ``tail``.

    Classes are ranked by their pixels; the first third is the head and the
    last third the tail, each rounded to the nearest integer.

    Example:
        >>> split_by_frequency([912, 49, 14, 16, 8])['tail'].tolist()
        [2, 4]
    """
    ranked = np.argsort(-np.asarray(class_counts, np.float64), kind='stable')
    third = round(len(ranked) / 3)
    parts = np.split(ranked, [third, len(ranked) - third])
    return dict(zip(('head', 'middle', 'tail'), parts, strict=True))


def class_iou(results: Sequence[Sequence[Tensor]]) -> NDArray:
    """IoU of each class in percent, (K,); NaN for a class without pixels.

    Args:
        results: What upstream's IoUMetric collects for each image: the areas
            of intersection, union, prediction and label, each (K,).
    """
    intersect, union, _, label = (
        torch.stack(areas).sum(0) for areas in zip(*results, strict=True)
    )
    iou = iou_lower_bound(label, label - intersect, union - label)
    return (100 * iou).numpy()


def class_scalars(names: Sequence[str], iou: NDArray) -> dict[str, float]:
    """``IoU/<class>`` of every class that has an IoU, rounded."""
    pairs = zip(names, iou.round(2).tolist(), strict=True)
    return {f'IoU/{name}': x for name, x in pairs if np.isfinite(x)}


@METRICS.register_module()
class PerClassIoUMetric(IoUMetric):
    """Upstream's IoUMetric with ``IoU/<class>`` for every class.

    Upstream only prints them; here TensorBoard, W&B and ``scalars.json`` get
    them at every validation.

    Example:
        >>> val_evaluator = dict(type='PerClassIoUMetric')
    """

    def compute_metrics(self, results: list) -> dict[str, float]:
        metrics = super().compute_metrics(results)
        if self.format_only:
            return metrics
        names = (self.dataset_meta or {})['classes']
        return {**metrics, **class_scalars(names, class_iou(results))}


@METRICS.register_module()
class TailIoUMetric(TakesClassCounts, PerClassIoUMetric):
    """PerClassIoUMetric with ``mIoU_head``, ``_middle`` and ``_tail``.

    The log names the classes of each third. Without class counts the metric
    warns and leaves the thirds out.

    Example:
        >>> val_evaluator = dict(type='TailIoUMetric', iou_metrics=['mIoU'])
    """

    def compute_metrics(self, results: list) -> dict[str, float]:
        metrics = super().compute_metrics(results)
        logger = MMLogger.get_current_instance()
        if self.format_only:
            return metrics
        if self.class_counts is None:
            logger.warning(
                'TailIoUMetric has no class counts of the training set, so '
                'head, middle and tail are left out: set class_counts= or '
                "add dict(type='TrainingCountsHook') to custom_hooks."
            )
            return metrics
        iou, names = class_iou(results), (self.dataset_meta or {})['classes']
        thirds = split_by_frequency(self.counts_of(len(iou)))
        for third, members in thirds.items():
            if np.isfinite(iou[members]).any():
                mean = np.round(np.nanmean(iou[members]), 2)
                metrics[f'mIoU_{third}'] = mean
                listed = ', '.join(printable(names[k]) for k in members)
                logger.info(f'mIoU_{third} {mean:.2f}: {listed}')
        return metrics
