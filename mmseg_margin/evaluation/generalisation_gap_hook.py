"""The gap between training and unseen images, as numbers in the log."""

import copy

import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner
from mmengine.runner.amp import autocast
from mmseg.registry import HOOKS
from torch.utils.data import DataLoader

from mmseg_margin.errors import SettingError

from .margin_bound_metric import MarginBoundMetric
from .plain_images import plain_loader

MEASURED = ('mIoU', 'mIoU_bound', 'inside')


@HOOKS.register_module()
class GeneralisationGapHook(Hook):
    """Runs MarginBoundMetric on a sample of the training set as well.

    After each validation or test it adds, to the log and the visualiser's
    backends: ``train_mIoU``, ``train_mIoU_bound``, ``train_inside``,
    ``gap_mIoU`` (training minus unseen mIoU, the gap the paper speaks of) and
    ``gap_bound`` (training bound minus unseen mIoU, which eps limits).

    Args:
        num_images: Training images in the sample, evenly spaced over the set.

    Example:
        >>> test_evaluator = dict(type='MarginBoundMetric')
        >>> custom_hooks = [dict(type='GeneralisationGapHook')]
    """

    # After RuntimeInfoHook has recorded the metrics, before EMAHook puts the
    # training weights back and LoggerHook writes the line.
    priority = 'ABOVE_NORMAL'

    def __init__(self, num_images: int = 100) -> None:
        if num_images < 1:
            raise SettingError(
                f'num_images={num_images} is no sample: choose 1 or more.'
            )
        self.num_images = num_images
        self._loaders: dict[str, DataLoader] = {}

    def after_val_epoch(
        self, runner: Runner, metrics: dict[str, float] | None = None
    ) -> None:
        self._add_gap(runner, 'val', metrics)

    def after_test_epoch(
        self, runner: Runner, metrics: dict[str, float] | None = None
    ) -> None:
        shown = self._add_gap(runner, 'test', metrics)
        # Upstream shows only the metrics of a validation to the backends.
        runner.visualizer.add_scalars(shown)

    def _add_gap(
        self, runner: Runner, mode: str, metrics: dict[str, float] | None
    ) -> dict[str, float]:
        """All figures of the bound, with those that are added to them."""
        loop = getattr(runner, f'{mode}_loop')
        measured = [
            metric
            for metric in loop.evaluator.metrics
            if isinstance(metric, MarginBoundMetric)
        ]
        if not measured or metrics is None:
            runner.logger.warning(
                'GeneralisationGapHook has nothing to compare: add '
                f"dict(type='MarginBoundMetric') to {mode}_evaluator."
            )
            return {}
        train = self._measure_training(runner, mode, loop.fp16, measured[0])
        prefix = f'{measured[0].prefix}/'
        unseen = metrics[f'{prefix}mIoU']
        gap = {
            **{f'train_{name}': train[prefix + name] for name in MEASURED},
            'gap_mIoU': train[f'{prefix}mIoU'] - unseen,
            'gap_bound': train[f'{prefix}mIoU_bound'] - unseen,
        }
        for name, value in gap.items():
            metrics[prefix + name] = value
            runner.message_hub.update_scalar(f'{mode}/{prefix}{name}', value)
        return {k: v for k, v in metrics.items() if k.startswith(prefix)}

    def _measure_training(
        self, runner: Runner, mode: str, fp16: bool, metric: MarginBoundMetric
    ) -> dict[str, float]:
        metric = copy.deepcopy(metric)
        if mode not in self._loaders:
            self._loaders[mode] = plain_loader(
                runner, 'train', mode, self.num_images
            )
        loader = self._loaders[mode]
        size = len(loader.dataset)  # type: ignore[arg-type]
        runner.logger.info(f'On {size} training images:')
        step = getattr(runner.model, f'{mode}_step')
        with torch.no_grad(), autocast(enabled=fp16):
            for batch in loader:
                samples = [sample.to_dict() for sample in step(batch)]
                metric.process(batch, samples)
        return metric.evaluate(size)
