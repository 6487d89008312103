"""ClassStatsHook: label statistics and label check before the training.

Losses are found by their attributes, under any wrapper: ``set_class_stats`` or
``set_class_counts`` to receive statistics, ``offset_settings`` if they derive
margin-offsets from them.
"""

from typing import Any

from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmseg.registry import HOOKS
from torch import nn

from mmseg_margin.errors import SettingError
from mmseg_margin.functional import OffsetSettings
from mmseg_margin.heads import heads_of_model, modules
from mmseg_margin.losses.swap import weight_cross_entropy
from mmseg_margin.stats import (
    META_KEY,
    VALIDATION_KEY,
    ClassStats,
    StatsCache,
    check_labels,
    check_validation_labels,
    check_weight_method,
    format_table,
    stats_of_checkpoint,
)

ON_PROBLEM = ('error', 'warn')


@HOOKS.register_module()
class ClassStatsHook(Hook):
    """Counts the labels of the training set and gives them to the losses.

    Before the first iteration every annotation file is read once (or the
    result of an earlier scan is taken), bad labels of the training and of the
    validation set are reported, and the counts of the training set go to
    every loss that accepts them. The statistics are saved in the checkpoint,
    so that resuming needs no scan.

    Args:
        cache_dir: Folder of earlier results; None for the user's own,
            ``~/.cache/mmseg_margin/class_stats``.
        use_cache: Whether to keep results on disk at all.
        class_weight: Also set the class weights of mmseg's
            ``CrossEntropyLoss``: ``'inverse'``, ``'sqrt'``, ``'median'``,
            ``'effective'``, or a power of the inverse frequency.
        num_threads: Threads of each rank; by default all available cores.
        rare_share: Fraction of the labelled pixels below which a class is
            reported as very rare.
        on_problem: ``'error'`` stops before the first iteration, ``'warn'``
            trains in spite of problems.

    Example:
        >>> custom_hooks = [dict(type='ClassStatsHook')]
    """

    # Before EMAHook, which copies the model when the run begins.
    priority = 'ABOVE_NORMAL'

    def __init__(
        self,
        cache_dir: str | None = None,
        use_cache: bool = True,
        class_weight: str | float | None = None,
        num_threads: int | None = None,
        rare_share: float = 1e-4,
        on_problem: str = 'error',
    ) -> None:
        if class_weight is not None:
            check_weight_method('class_weight', class_weight)
        if on_problem not in ON_PROBLEM:
            raise SettingError(
                f'on_problem={on_problem!r} is not one of {ON_PROBLEM}.'
            )
        self.cache = StatsCache(cache_dir) if use_cache else None
        self.class_weight = class_weight
        self.num_threads = num_threads
        self.rare_share = rare_share
        self.on_problem = on_problem
        self.stats: ClassStats | None = None
        self._saved_meta: dict[str, Any] = {}
        self._loaded_meta: dict[str, Any] = {}

    def before_run(self, runner: Any) -> None:
        """Size the buffers of the losses before EMAHook copies the model."""
        if self.class_weight is not None:
            weight_cross_entropy(runner.model, self.class_weight)
        for head in heads_of_model(runner.model).values():
            for _, loss in modules(head):
                if hasattr(loss, 'expect_classes'):
                    loss.expect_classes(head.num_classes)

    def after_load_checkpoint(self, runner: Any, checkpoint: dict) -> None:
        """Keep the metadata until it is known whether this is a resume."""
        self._loaded_meta = checkpoint.get('meta') or {}

    def before_train(self, runner: Any) -> None:
        """Scan, check, report, and give the statistics to the losses."""
        model, offsets = runner.model, offset_settings_of(runner.model)
        # mmengine calls after_load_checkpoint for fine-tuning too, where the
        # checkpoint's data set is another one; only resuming has iterations.
        meta = self._loaded_meta if runner.iter > 0 else {}
        report = check_labels(
            runner.train_dataloader.dataset,
            model,
            self.cache,
            stats_of_checkpoint(meta),
            self.num_threads,
            self.rare_share,
            offsets,
        )
        stats = report.stats
        self._saved_meta = {META_KEY: stats.to_dict()}
        loader = getattr(runner.val_loop, 'dataloader', None)
        if loader is not None:
            known = stats_of_checkpoint(meta, VALIDATION_KEY)
            report.validation = check_validation_labels(
                loader.dataset, model, self.cache, known, self.num_threads
            )
        if report.validation is not None:
            found = report.validation.stats
            self._saved_meta[VALIDATION_KEY] = found.to_dict()
        if self.on_problem == 'error':
            report.raise_errors()
        if str(report):
            runner.logger.warning(str(report))
        self.stats = stats
        give_stats(model, stats)
        weights = None
        if self.class_weight is not None:
            weights = stats.class_weights(self.class_weight)
        print_log(format_table(stats, offsets, weights), logger='current')

    def before_save_checkpoint(self, runner: Any, checkpoint: dict) -> None:
        """Save the statistics."""
        checkpoint['meta'].update(self._saved_meta)


def give_stats(model: nn.Module, stats: ClassStats) -> None:
    """Give the statistics to every module that accepts them."""
    for _, module in modules(model):
        if hasattr(module, 'set_class_stats'):
            module.set_class_stats(stats)
        elif hasattr(module, 'set_class_counts'):
            module.set_class_counts(stats.counts)


def offset_settings_of(model: nn.Module) -> OffsetSettings | None:
    """Settings of the first loss that derives its offsets from the counts."""
    for _, loss in modules(model):
        settings = getattr(loss, 'offset_settings', None)
        if settings is not None and not getattr(loss, 'has_own_counts', False):
            return settings
    return None
