"""Class counts of the training set for metrics, in training and in tests."""

from mmengine.evaluator import Evaluator
from mmengine.hooks import Hook
from mmengine.runner import Runner
from mmseg.registry import HOOKS

from mmseg_margin.errors import DataSetError
from mmseg_margin.stats import (
    ClassStats,
    StatsCache,
    check_labels,
    stats_of_checkpoint,
)


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
        """Remember the statistics that the training has left."""
        self._loaded = stats_of_checkpoint(checkpoint.get('meta') or {})

    def before_val_epoch(self, runner: Runner) -> None:
        """Serve the metrics of a validation."""
        self._serve(runner, runner.val_loop.evaluator)

    def before_test_epoch(self, runner: Runner) -> None:
        """Serve the metrics of a test."""
        self._serve(runner, runner.test_loop.evaluator)

    def _serve(self, runner: Runner, evaluator: Evaluator) -> None:
        metrics = [
            metric
            for metric in evaluator.metrics
            if getattr(metric, 'needs_class_counts', False)
        ]
        if not metrics:
            return
        classes = list((evaluator.dataset_meta or {}).get('classes', ()))
        stats = self._known(runner, classes) or self._count(runner)
        if stats is not None:
            for metric in metrics:
                metric.set_class_counts(stats.counts)

    def _known(self, runner: Runner, classes: list[str]) -> ClassStats | None:
        of_hooks = [getattr(hook, 'stats', None) for hook in runner.hooks]
        for stats in (*of_hooks, self._loaded):
            if isinstance(stats, ClassStats) and stats.classes == classes:
                return stats
        return None

    def _count(self, runner: Runner) -> ClassStats | None:
        labels = runner.cfg.train_dataloader.dataset
        try:
            return check_labels(labels, runner.model, self.cache).stats
        except DataSetError as error:
            runner.logger.warning(
                'The class counts of the training set are not known, because '
                f'the checkpoint has none and its labels are missing: {error}'
            )
            return None
