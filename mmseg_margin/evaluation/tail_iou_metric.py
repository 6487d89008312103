"""IoU per class, and mIoU of frequent, middle and rare classes."""

from collections.abc import Sequence

import numpy as np
import torch
from mmengine.logging import MMLogger
from mmseg.evaluation import IoUMetric
from mmseg.registry import METRICS
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from mmseg_margin.config_tools import as_list
from mmseg_margin.errors import SettingError, printable

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


def class_iou(results: Sequence[Sequence[Tensor] | Tensor]) -> NDArray:
    """IoU of each class in percent, (K,); NaN for a class without pixels.

    Args:
        results: For each image the areas of intersection and union, (K,)
            each, then anything else: what upstream's IoUMetric collects.
    """
    intersection, union = (
        torch.stack(areas).sum(0)
        for areas in zip(*(image[:2] for image in results), strict=True)
    )
    return (100 * (intersection / union)).numpy()


def class_scalars(
    kind: str, names: Sequence[str], values: NDArray
) -> dict[str, float]:
    """``<kind>/<class>`` of every class that has a value, rounded."""
    pairs = zip(names, values.round(2).tolist(), strict=True)
    return {f'{kind}/{name}': x for name, x in pairs if np.isfinite(x)}


@METRICS.register_module()
class PerClassIoUMetric(IoUMetric):
    """Upstream's IoUMetric with ``IoU/<class>`` for every class.

    Upstream only prints them; here TensorBoard, W&B and ``scalars.json`` get
    them at every validation.

    Args:
        exclude: Names of classes, such as the background. If there are any,
            ``mIoU_foreground`` is added, the mean over the other classes.
        kwargs: Those of IoUMetric.

    Example:
        >>> val_evaluator = dict(
        ...     type='PerClassIoUMetric', exclude=('background',))
    """

    def __init__(self, exclude: Sequence[str] = (), **kwargs) -> None:
        super().__init__(**kwargs)
        self.exclude = as_list(exclude)

    @property
    def class_names(self) -> Sequence[str]:
        """Names of the K classes of the evaluated data set."""
        return (self.dataset_meta or {})['classes']

    def groups(self) -> dict[str, ArrayLike]:
        """Indices of the classes of each group that gets an mIoU."""
        if not self.exclude:
            return {}
        names = enumerate(self.class_names)
        return {'foreground': [k for k, x in names if x not in self.exclude]}

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        """Compare predictions and labels; refuse unknown names at once."""
        for name in self.exclude:
            if name not in self.class_names:
                raise SettingError(
                    f'exclude={self.exclude}: the data set has no class '
                    f'{name!r}, only {", ".join(self.class_names)}.'
                )
        super().process(data_batch, data_samples)

    def compute_metrics(self, results: list) -> dict[str, float]:
        metrics = super().compute_metrics(results)
        if self.format_only:
            return metrics
        iou = class_iou(results)
        for group, members in self.groups().items():
            members = np.asarray(members, int)
            if np.isfinite(iou[members]).any():
                mean = np.round(np.nanmean(iou[members]), 2)
                metrics[f'mIoU_{group}'] = mean
                names = (printable(self.class_names[k]) for k in members)
                MMLogger.get_current_instance().info(
                    f'mIoU_{group} {mean:.2f}: {", ".join(names)}'
                )
        return {**metrics, **class_scalars('IoU', self.class_names, iou)}


@METRICS.register_module()
class TailIoUMetric(TakesClassCounts, PerClassIoUMetric):
    """PerClassIoUMetric with ``mIoU_head``, ``_middle`` and ``_tail``.

    The log names the classes of each third. Without class counts the metric
    warns and leaves the thirds out.

    Args:
        kwargs: Those of TakesClassCounts and of PerClassIoUMetric.

    Example:
        >>> val_evaluator = dict(type='TailIoUMetric', iou_metrics=['mIoU'])
    """

    def groups(self) -> dict[str, ArrayLike]:
        if self.class_counts is None:
            MMLogger.get_current_instance().warning(
                'TailIoUMetric has no class counts of the training set, so '
                'head, middle and tail are left out: set class_counts= or '
                "add dict(type='TrainingCountsHook') to custom_hooks."
            )
            return super().groups()
        counts = self.counts_of(len(self.class_names))
        return {**super().groups(), **split_by_frequency(counts)}
