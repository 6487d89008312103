"""The gap between training and unseen images, as numbers in the log."""

import copy

import numpy as np
import torch
from mmengine.hooks import Hook
from mmengine.runner import BaseLoop, Runner
from mmengine.runner.amp import autocast
from mmseg.registry import DATASETS, HOOKS
from torch.utils.data import ConcatDataset, DataLoader, Subset

from mmseg_margin.errors import SettingError
from mmseg_margin.walks import leaf_datasets

from .margin_bound_metric import MarginBoundMetric


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
        self._samples: dict[str, tuple[DataLoader, int]] = {}

    def after_val_epoch(
        self, runner: Runner, metrics: dict[str, float] | None = None
    ) -> None:
        """Add the training sample's figures to the validation's."""
        self._add_gap(runner, runner.val_loop, 'val', metrics)

    def after_test_epoch(
        self, runner: Runner, metrics: dict[str, float] | None = None
    ) -> None:
        """Add the training sample's figures to the test's."""
        shown = self._add_gap(runner, runner.test_loop, 'test', metrics)
        # Upstream shows only the metrics of a validation to the backends.
        runner.visualizer.add_scalars(shown)

    def _add_gap(
        self, runner: Runner, loop: BaseLoop, mode: str, metrics: dict | None
    ) -> dict[str, float]:
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
        metric = copy.deepcopy(measured[0])
        if mode not in self._samples:
            self._samples[mode] = self._build_sample(runner, mode)
        loader, size = self._samples[mode]
        runner.logger.info(f'On {size} training images:')
        step = getattr(runner.model, f'{mode}_step')
        with torch.no_grad(), autocast(enabled=loop.fp16):
            for batch in loader:
                samples = [sample.to_dict() for sample in step(batch)]
                metric.process(batch, samples)
        train = metric.evaluate(size)
        prefix = f'{metric.prefix}/'
        gap = gap_figures(prefix, metrics, train)
        metrics.update(gap)
        for name, value in gap.items():
            runner.message_hub.update_scalar(f'{mode}/{name}', value)
        return {k: v for k, v in metrics.items() if k.startswith(prefix)}

    def _build_sample(
        self, runner: Runner, mode: str
    ) -> tuple[DataLoader, int]:
        unseen = runner.cfg[f'{mode}_dataloader']
        pipeline = leaf_datasets(unseen.dataset)[0].pipeline
        parts = leaf_datasets(runner.cfg.train_dataloader.dataset)
        images: ConcatDataset = ConcatDataset(
            [DATASETS.build(dict(part, pipeline=pipeline)) for part in parts]
        )
        count = min(self.num_images, len(images))
        chosen = np.linspace(0, len(images) - 1, count).round().astype(int)
        loader = runner.build_dataloader(
            {
                'dataset': Subset(images, chosen.tolist()),
                'batch_size': unseen.batch_size,
                'num_workers': unseen.num_workers,
                'sampler': {'type': 'DefaultSampler', 'shuffle': False},
            }
        )
        return loader, count


def gap_figures(
    prefix: str, unseen: dict[str, float], train: dict[str, float]
) -> dict[str, float]:
    """The figures of the training sample and the two gaps, by their names."""
    figures = {
        f'{prefix}train_{name}': train[prefix + name]
        for name in ('mIoU', 'mIoU_bound', 'inside')
    }
    for name, key in (('gap_mIoU', 'mIoU'), ('gap_bound', 'mIoU_bound')):
        figures[prefix + name] = train[prefix + key] - unseen[f'{prefix}mIoU']
    return figures
