"""Class counts of the training set for metrics, in training and in tests."""

from collections.abc import Sequence

import numpy as np
from mmengine.evaluator import Evaluator
from mmengine.hooks import Hook
from mmengine.runner import Runner
from mmseg.registry import HOOKS
from numpy.typing import NDArray

from mmseg_margin.errors import DataSetError, SettingError
from mmseg_margin.stats import (
    ClassStats,
    StatsCache,
    check_labels,
    stats_of_checkpoint,
)


class TakesClassCounts:
    """Mixin for a metric that needs the class counts of the training set.

    Args:
        class_counts: Labelled pixels of each class of the training set. None:
            TrainingCountsHook sets them.
        kwargs: Those of the metric.
    """

    def __init__(
        self, class_counts: Sequence[int] | None = None, **kwargs
    ) -> None:
        super().__init__(**kwargs)
        self.class_counts = class_counts

    def counts_of(self, num_classes: int) -> NDArray[np.int64]:
        """The counts (K,); an error if they are missing or too few."""
        if self.class_counts is None:
            raise SettingError(
                f'{type(self).__name__} has no class counts of the training '
                'set: set class_counts=, test a checkpoint that was trained '
                "with ClassStatsHook, or add dict(type='TrainingCountsHook') "
                'to custom_hooks.'
            )
        if len(self.class_counts) != num_classes:
            raise SettingError(
                f'class_counts has {len(self.class_counts)} entries, but the '
                f'data set has {num_classes} classes: count the training set '
                'of this config.'
            )
        return np.asarray(self.class_counts, dtype=np.int64)


@HOOKS.register_module()
class TrainingCountsHook(Hook):
    """Gives the training set's class counts to every metric without them.

    In this order: the statistics of a ClassStatsHook of this run, those in
    the loaded checkpoint, the cache or a scan of the training set's labels.

    Args:
        cache_dir: As in ClassStatsHook.

    Example:
        >>> custom_hooks = [dict(type='TrainingCountsHook')]
    """

    def __init__(self, cache_dir: str | None = None) -> None:
        self.cache = StatsCache(cache_dir)
        self._loaded: ClassStats | None = None

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Keep the statistics that the training has saved."""
        self._loaded = stats_of_checkpoint(checkpoint.get('meta') or {})

    def before_val_epoch(self, runner: Runner) -> None:
        self._set_counts(runner, runner.val_loop.evaluator)

    def before_test_epoch(self, runner: Runner) -> None:
        self._set_counts(runner, runner.test_loop.evaluator)

    def _set_counts(self, runner: Runner, evaluator: Evaluator) -> None:
        metrics = [
            metric
            for metric in evaluator.metrics
            if isinstance(metric, TakesClassCounts)
            and metric.class_counts is None
        ]
        if not metrics:
            return
        classes = list((evaluator.dataset_meta or {}).get('classes', ()))
        stats = self._find(runner, classes)
        for metric in metrics:
            metric.class_counts = stats.counts if stats else None

    def _find(self, runner: Runner, classes: list[str]) -> ClassStats | None:
        of_hooks = [getattr(hook, 'stats', None) for hook in runner.hooks]
        for stats in (*of_hooks, self._loaded):
            if isinstance(stats, ClassStats) and stats.classes == classes:
                return stats
        labels = runner.cfg.train_dataloader.dataset
        try:
            return check_labels(labels, runner.model, self.cache).stats
        except DataSetError as error:
            runner.logger.warning(
                'The class counts of the training set are unknown: the '
                f'checkpoint has none, and the labels are missing: {error}'
            )
            return None
