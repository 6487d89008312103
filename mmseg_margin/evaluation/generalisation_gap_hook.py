"""The gap between training images and unseen images."""

import copy

import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner
from mmengine.runner.amp import autocast
from mmseg.registry import DATASETS, HOOKS
from torch.utils.data import ConcatDataset, DataLoader, Subset

from mmseg_margin.config_tools import evenly_spaced, leaf_datasets
from mmseg_margin.errors import SettingError

from .margin_bound_metric import MarginBoundMetric

MEASURED = ('mIoU', 'mIoU_bound', 'inside')


@HOOKS.register_module()
class GeneralisationGapHook(Hook):
    """Runs MarginBoundMetric on a sample of the training set as well.

    After each validation or test it adds to the metrics and the visualiser's
    backends: ``train_mIoU``, ``train_mIoU_bound``, ``train_inside``,
    ``gap_mIoU`` (training minus unseen mIoU, the paper's gap) and
    ``gap_bound`` (training bound minus unseen mIoU, which eps limits).

    Args:
        num_images: Training images in the sample, evenly spaced.

    Example:
        >>> test_evaluator = dict(type='MarginBoundMetric')
        >>> custom_hooks = [dict(type='GeneralisationGapHook')]
    """

    # After RuntimeInfoHook has recorded the metrics, before EMAHook restores
    # the training weights and LoggerHook writes the line.
    priority = 'ABOVE_NORMAL'

    def __init__(self, num_images: int = 100) -> None:
        if num_images < 1:
            raise SettingError(f'num_images={num_images} must be positive.')
        self.num_images = num_images
        self._loaders: dict[str, DataLoader] = {}

    def after_val_epoch(
        self, runner: Runner, metrics: dict[str, float] | None = None
    ) -> None:
        self._add_gap(runner, 'val', metrics or {})

    def after_test_epoch(
        self, runner: Runner, metrics: dict[str, float] | None = None
    ) -> None:
        metrics = metrics or {}
        self._add_gap(runner, 'test', metrics)
        # Upstream sends only the metrics of a validation to the backends.
        margin = {k: v for k, v in metrics.items() if k.startswith('margin/')}
        runner.visualizer.add_scalars(margin)

    def _add_gap(
        self, runner: Runner, mode: str, metrics: dict[str, float]
    ) -> None:
        in_use = getattr(runner, f'{mode}_loop').evaluator.metrics
        bounds = [x for x in in_use if isinstance(x, MarginBoundMetric)]
        if not bounds:
            runner.logger.warning(
                'GeneralisationGapHook has nothing to compare: add '
                f"dict(type='MarginBoundMetric') to {mode}_evaluator."
            )
            return
        train = self._measure_training(runner, mode, bounds[0])
        prefix = f'{bounds[0].prefix}/'
        unseen = metrics[f'{prefix}mIoU']
        gap = {
            **{f'train_{name}': train[prefix + name] for name in MEASURED},
            'gap_mIoU': train[f'{prefix}mIoU'] - unseen,
            'gap_bound': train[f'{prefix}mIoU_bound'] - unseen,
        }
        for name, value in gap.items():
            metrics[prefix + name] = value
            runner.message_hub.update_scalar(f'{mode}/{prefix}{name}', value)

    def _measure_training(
        self, runner: Runner, mode: str, metric: MarginBoundMetric
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
        fp16 = getattr(runner, f'{mode}_loop').fp16
        with torch.no_grad(), autocast(enabled=fp16):
            for batch in loader:
                samples = [sample.to_dict() for sample in step(batch)]
                metric.process(batch, samples)
        return metric.evaluate(size)


def plain_loader(
    runner: Runner, split: str, like: str, num_images: int | None = None
) -> DataLoader:
    """Images of one split as they are tested: in order, not augmented.

    They are loaded as those of the split ``like``, without wrappers that
    repeat or mix images. Of more than ``num_images`` an evenly spaced
    selection is taken, whose indices are ``loader.dataset.indices``.
    """
    settings = runner.cfg[f'{like}_dataloader']
    pipeline = leaf_datasets(settings.dataset)[0].pipeline
    parts = leaf_datasets(runner.cfg[f'{split}_dataloader'].dataset)
    images: ConcatDataset = ConcatDataset(
        [DATASETS.build(dict(part, pipeline=pipeline)) for part in parts]
    )
    return runner.build_dataloader(
        {
            'dataset': Subset(images, evenly_spaced(len(images), num_images)),
            'batch_size': settings.batch_size,
            'num_workers': settings.get('num_workers', 0),
            'sampler': {'type': 'DefaultSampler', 'shuffle': False},
        }
    )
