"""IoU per class, mIoU of frequent, middle and rare classes, class counts."""

from collections.abc import Sequence

import numpy as np
import torch
from mmengine.evaluator import Evaluator
from mmengine.hooks import Hook
from mmengine.runner import Runner
from mmseg.evaluation import IoUMetric
from mmseg.registry import HOOKS, METRICS
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from mmseg_margin.config_tools import as_list
from mmseg_margin.errors import SettingError
from mmseg_margin.stats import StatsCache, check_labels, stats_of_checkpoint


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

    def groups(self, classes: Sequence[str]) -> dict[str, ArrayLike]:
        """Indices of the classes of each group that gets an mIoU."""
        unknown = {*self.exclude} - {*classes}
        if unknown:
            raise SettingError(
                f'exclude={self.exclude}: the data set has no class '
                f'{min(unknown)!r}, only {", ".join(classes)}.'
            )
        kept = [k for k, x in enumerate(classes) if x not in self.exclude]
        return {'foreground': kept} if self.exclude else {}

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        """Compare predictions and labels; refuse bad settings at once."""
        self.groups((self.dataset_meta or {})['classes'])
        super().process(data_batch, data_samples)

    def compute_metrics(self, results: list) -> dict[str, float]:
        metrics = super().compute_metrics(results)
        if self.format_only:
            return metrics
        iou, classes = class_iou(results), (self.dataset_meta or {})['classes']
        for group, members in self.groups(classes).items():
            chosen = iou[np.asarray(members, int)]
            if np.isfinite(chosen).any():
                metrics[f'mIoU_{group}'] = np.round(np.nanmean(chosen), 2)
        for name, value in zip(classes, iou.round(2).tolist(), strict=True):
            if np.isfinite(value):
                metrics[f'IoU/{name}'] = value
        return metrics


def check_counts(
    counts: Sequence[int] | None, classes: Sequence[str]
) -> NDArray[np.int64]:
    """Class counts (K,) of the training set; an error if they are missing."""
    if counts is None or len(counts) != len(classes):
        raise SettingError(
            f'The class counts of the training set are {counts}, but the data '
            f'set has {len(classes)} classes: correct class_counts= of the '
            "metric, or add dict(type='TrainingCountsHook') to custom_hooks."
        )
    return np.asarray(counts, dtype=np.int64)


@METRICS.register_module()
class TailIoUMetric(PerClassIoUMetric):
    """PerClassIoUMetric with ``mIoU_head``, ``_middle`` and ``_tail``.

    Args:
        class_counts: Labelled pixels of each class of the training set. None:
            TrainingCountsHook sets them.
        kwargs: Those of PerClassIoUMetric.

    Example:
        >>> val_evaluator = dict(type='TailIoUMetric', iou_metrics=['mIoU'])
    """

    def __init__(
        self, class_counts: Sequence[int] | None = None, **kwargs
    ) -> None:
        super().__init__(**kwargs)
        self.class_counts = class_counts

    def groups(self, classes: Sequence[str]) -> dict[str, ArrayLike]:
        thirds = split_by_frequency(check_counts(self.class_counts, classes))
        return {**super().groups(classes), **thirds}


@HOOKS.register_module()
class TrainingCountsHook(Hook):
    """Gives the training set's class counts to every metric without them.

    They come from a ClassStatsHook of this run, from the loaded checkpoint,
    or else from the cache or a scan of the training set's labels.

    Args:
        cache_dir: As in ClassStatsHook.

    Example:
        >>> custom_hooks = [dict(type='TrainingCountsHook')]
    """

    def __init__(self, cache_dir: str | None = None) -> None:
        self.cache = StatsCache(cache_dir)
        self.loaded = stats_of_checkpoint({})

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Keep the statistics that the training has saved."""
        self.loaded = stats_of_checkpoint(checkpoint.get('meta') or {})

    def before_val_epoch(self, runner: Runner) -> None:
        self._set_counts(runner, runner.val_loop.evaluator)

    def before_test_epoch(self, runner: Runner) -> None:
        self._set_counts(runner, runner.test_loop.evaluator)

    def _set_counts(self, runner: Runner, evaluator: Evaluator) -> None:
        found = evaluator.metrics
        metrics = [x for x in found if getattr(x, 'class_counts', ()) is None]
        if not metrics:
            return
        classes = list((evaluator.dataset_meta or {}).get('classes', ()))
        known = [getattr(hook, 'stats', None) for hook in runner.hooks]
        for stats in [*known, self.loaded]:
            if stats and getattr(stats, 'classes', None) == classes:
                break
        else:
            labels = runner.cfg.train_dataloader.dataset
            stats = check_labels(labels, runner.model, self.cache).stats
        for metric in metrics:
            metric.class_counts = stats.counts
