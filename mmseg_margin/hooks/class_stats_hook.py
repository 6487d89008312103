"""ClassStatsHook: label statistics and label check before the training.

Losses are found by what they can do, under any wrapper: ``set_class_stats``
or ``set_class_counts`` to receive statistics, ``training_state`` and
``load_training_state`` to survive a resume.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmseg.models.losses import CrossEntropyLoss
from mmseg.registry import HOOKS
from torch import nn

from mmseg_margin.compat import weight_cross_entropy
from mmseg_margin.errors import SettingError
from mmseg_margin.heads import heads_of_model, modules, predicts_boundaries
from mmseg_margin.losses.cross_entropy_losses import weighted_cross_entropy
from mmseg_margin.stats import (
    META_KEY,
    ClassStats,
    StatsCache,
    check_labels,
    check_weight_method,
    format_table,
    stats_of_checkpoint,
)

STATE_KEY = 'margin_state'
ON_PROBLEM = ('error', 'warn')


@HOOKS.register_module()
class ClassStatsHook(Hook):
    """Counts the labels of the training set and hands them to the losses.

    Before the first iteration every annotation file is read once (or the
    result of an earlier scan is taken), bad labels are reported, and the
    counts go to every loss that accepts them. The statistics are kept in the
    checkpoint, so that resuming needs no scan.

    Args:
        cache_dir: Folder of earlier results; None for the user's own,
            ``~/.cache/mmseg_margin/class_stats``.
        use_cache: Whether to keep results on disk at all.
        class_weight: Also set the class weights of mmseg's
            ``CrossEntropyLoss``: ``'inverse'``, ``'sqrt'``, ``'median'``,
            ``'effective'``, or a power of the inverse frequency.
        num_threads: Threads of each rank; by default the cores there are.
        rare_share: Share of the labelled pixels below which a class is
            reported as very rare.
        on_problem: ``'error'`` stops before the first iteration, ``'warn'``
            trains nevertheless.

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
        self._loaded_meta: dict[str, Any] = {}

    def before_run(self, runner: Any) -> None:
        """Let the losses' buffers have their size before they are copied."""
        for head in heads_of_model(runner.model).values():
            for _, loss in modules_with(head, 'expect_classes'):
                loss.expect_classes(head.num_classes)

    def after_load_checkpoint(self, runner: Any, checkpoint: dict) -> None:
        """Remember what a checkpoint holds until it is known to be ours."""
        self._loaded_meta = checkpoint.get('meta') or {}

    def before_train(self, runner: Any) -> None:
        """Scan, check, report, and hand the statistics over."""
        # mmengine calls after_load_checkpoint for fine-tuning too, where the
        # checkpoint's data set is another one; only resuming has iterations.
        meta = self._loaded_meta if runner.iter > 0 else {}
        model = runner.model
        report = check_labels(
            runner.train_dataloader.dataset,
            model,
            self.cache,
            stats_of_checkpoint(meta),
            self.num_threads,
            self.rare_share,
        )
        if self.on_problem == 'error':
            report.raise_errors()
        if report.errors or report.warnings:
            runner.logger.warning(str(report))
        self.stats = report.stats
        give_stats(model, report.stats, not report.errors)
        weights = None
        if self.class_weight is not None:
            weights = report.stats.class_weights(self.class_weight)
            set_class_weights(model, weights)
        settings = margin_settings(model)
        table = format_table(report.stats, **settings, weights=weights)
        print_log(table, logger='current')
        states = meta.get(STATE_KEY, {})
        for name, loss in modules_with(model, 'load_training_state'):
            if name in states:
                loss.load_training_state(states[name])

    def before_save_checkpoint(self, runner: Any, checkpoint: dict) -> None:
        """Keep the statistics and the running state of the losses."""
        if self.stats is not None:
            checkpoint['meta'][META_KEY] = self.stats.to_dict()
            losses = modules_with(runner.model, 'training_state')
            states = {name: loss.training_state() for name, loss in losses}
            checkpoint['meta'][STATE_KEY] = states


def modules_with(model: nn.Module, method: str) -> Iterator[tuple[str, Any]]:
    """The modules that can do something, by their names without wrappers."""
    for name, module in modules(model):
        if hasattr(module, method):
            yield name, module


def give_stats(
    model: nn.Module, stats: ClassStats, labels_checked: bool = False
) -> None:
    """Give every module that accepts them the statistics.

    A loss with an attribute ``labels_checked`` is told whether every label of
    the data set is known to be valid.
    """
    for _, module in modules(model):
        if hasattr(module, 'set_class_stats'):
            module.set_class_stats(stats)
        elif hasattr(module, 'set_class_counts'):
            module.set_class_counts(stats.counts)
        if hasattr(module, 'labels_checked'):
            module.labels_checked = labels_checked


def set_class_weights(model: nn.Module, weights: Sequence[float]) -> None:
    """Set the class weights of mmseg's softmax cross-entropy losses."""
    # Such heads have two classes of their own.
    boundaries = tuple(
        f'{name}.'
        for name, head in heads_of_model(model).items()
        if predicts_boundaries(head)
    )
    for name, module in modules(model):
        is_ce = isinstance(module, CrossEntropyLoss)
        if not is_ce or name.startswith(boundaries):
            continue
        reason = ''
        if module.use_sigmoid or module.use_mask:
            reason = 'is not a softmax cross-entropy'
        elif not weight_cross_entropy(module, weights, weighted_cross_entropy):
            reason = 'has a class_weight of its own'
        if reason:
            print_log(
                f'{name} {reason}: ClassStatsHook leaves its class weights '
                'alone.',
                logger='current',
                level=logging.WARNING,
            )


def margin_settings(model: nn.Module) -> dict[str, float]:
    """``tau`` and ``upsilon`` of the first loss that has them."""
    for _, loss in modules_with(model, 'upsilon'):
        return {'tau': loss.tau, 'upsilon': loss.upsilon}
    return {}
