"""ClassStatsHook: label statistics and label check before the training.

Losses are found by their attributes, under any wrapper: ``set_class_stats`` or
``set_class_counts`` to receive statistics, ``offset_settings`` if they derive
margin-offsets from them.
"""

import logging
from typing import Any

from mmengine.hooks import Hook
from mmseg.registry import HOOKS
from torch import nn

from mmseg_margin.errors import one_of, require
from mmseg_margin.functional import OffsetSettings
from mmseg_margin.heads import heads_of_model, modules
from mmseg_margin.stats import META_KEY, ClassStats, StatsCache, check_labels

logger = logging.getLogger('mmseg_margin')


@HOOKS.register_module()
class ClassStatsHook(Hook):
    """Counts the labels of the training set and gives them to the losses.

    Before the first iteration every annotation file is read once (or the
    result of an earlier scan is taken), bad labels of the training and of the
    validation set are reported, and the counts of the training set go to
    every loss that accepts them. They are saved in the checkpoint too.

    Args:
        cache_dir: Folder of earlier results; None for the user's own,
            ``~/.cache/mmseg_margin/class_stats``.
        use_cache: Whether to keep results on disk at all.
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
        on_problem: str = 'error',
    ) -> None:
        require('on_problem', on_problem, *one_of(('error', 'warn')))
        self.cache = StatsCache(cache_dir) if use_cache else None
        self.on_problem = on_problem
        self.stats: ClassStats | None = None

    def before_run(self, runner: Any) -> None:
        """Size the buffers of the losses before EMAHook copies the model."""
        for head in heads_of_model(runner.model).values():
            for _, loss in modules(head):
                if hasattr(loss, 'expect_classes'):
                    loss.expect_classes(head.num_classes)

    def before_train(self, runner: Any) -> None:
        """Scan, check, report, and give the statistics to the losses."""
        loader = getattr(runner.val_loop, 'dataloader', None)
        report = check_labels(
            runner.train_dataloader.dataset,
            runner.model,
            self.cache,
            offset_settings_of(runner.model),
            getattr(loader, 'dataset', None),
        )
        if self.on_problem == 'error':
            report.raise_errors()
        if str(report):
            logger.warning(str(report))
        self.stats = report.stats
        give_stats(runner.model, report.stats)
        logger.info(report.table())

    def before_save_checkpoint(self, runner: Any, checkpoint: dict) -> None:
        """Save the statistics."""
        if self.stats is not None:
            checkpoint['meta'][META_KEY] = self.stats.to_dict()


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
