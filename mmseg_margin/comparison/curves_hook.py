"""CurvesHook: how a training goes, on images seen and unseen."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.dataset import pseudo_collate
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner
from mmseg.evaluation import IoUMetric
from mmseg.registry import DATASETS, HOOKS
from torch import nn
from torch.utils.data import DataLoader, Subset

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.evaluation.tail_iou_metric import class_iou

CURVES_FILE = 'curves.json'
STATE_KEY = 'curves'


@HOOKS.register_module()
class CurvesHook(Hook):
    """Loss and mIoU on some training and validation images, as in Figure 3.

    Both are measured without augmentation and in evaluation mode, so that
    they can be compared with each other. The points are kept in the
    checkpoint, and in ``curves.json`` in the work dir.

    Args:
        datasets: Data set configs for ``'train'`` and ``'val'``, with the
            pipeline of the validation.
        interval: Iterations between two points.
        images: Of each data set, evenly spread.

    Example:
        >>> custom_hooks = [
        ...     dict(type='CurvesHook', datasets=dict(val=val_dataset))
        ... ]
    """

    def __init__(
        self, datasets: dict[str, dict], interval: int, images: int = 20
    ) -> None:
        self.datasets = datasets
        self.interval = interval
        self.images = images
        self.curves: dict[str, list[tuple[int, float]]] = {}
        self.seconds: list[float] = []
        self._loaders: dict[str, DataLoader] = {}
        self._meta: dict = {}
        self._loaded: dict = {}
        self._started = 0.0

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Go on with the points of an interrupted training."""
        self._loaded = (checkpoint.get('meta') or {}).get(STATE_KEY, {})

    def before_train(self, runner: Runner) -> None:
        # A checkpoint to start from has no iterations, one to resume has.
        if runner.iter > 0:
            self.curves = self._loaded
        for split, dataset in self.datasets.items():
            built = DATASETS.build(dataset)
            self._meta = built.metainfo
            chosen = np.linspace(
                0, len(built) - 1, min(self.images, len(built))
            )
            self._loaders[split] = DataLoader(
                Subset(built, chosen.round().astype(int).tolist()),
                collate_fn=pseudo_collate,
            )

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        checkpoint['meta'][STATE_KEY] = self.curves

    def before_train_iter(self, runner: Runner, *args, **kwargs) -> None:
        self._started = time.perf_counter()

    def after_train_iter(self, runner: Runner, *args, **kwargs) -> None:
        self.seconds.append(time.perf_counter() - self._started)
        if self.every_n_train_iters(runner, self.interval):
            for split, loader in self._loaders.items():
                loss, miou = measure(runner.model, loader, self._meta)
                for name, value in (('loss', loss), ('mIoU', miou)):
                    self.curves.setdefault(f'{split}_{name}', []).append(
                        (runner.iter + 1, value)
                    )
            path = Path(runner.work_dir, CURVES_FILE)
            atomic_write_text(path, json.dumps(self.curves))


@torch.no_grad()
def measure(model: Any, loader: DataLoader, meta: dict) -> tuple[float, float]:
    """Mean loss of the decode head, and mIoU in percent."""
    if is_model_wrapper(model):
        model = model.module
    heads = model.decode_head
    head: Any = heads[-1] if isinstance(heads, nn.ModuleList) else heads
    was_training = model.training
    model.eval()
    metric = IoUMetric(iou_metrics=['mIoU'])
    metric.dataset_meta = meta
    losses = []
    for batch in loader:
        data = model.data_preprocessor(batch, False)
        (sample,) = model(**data, mode='predict')
        metric.process({}, [sample.to_dict()])
        terms = head.loss_by_feat(sample.seg_logits.data[None], [sample])
        losses.append(float(model.parse_losses(terms)[0]))
    model.train(was_training)
    miou = float(np.nanmean(class_iou(metric.results)))
    return float(np.mean(losses)), miou
