"""What a run measures of itself: its curves, and the IoU of each class."""

import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.dataset import pseudo_collate
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner
from mmseg.evaluation import IoUMetric
from mmseg.registry import DATASETS, HOOKS, METRICS
from torch import nn
from torch.utils.data import Subset

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.config_tools import evenly_spaced
from mmseg_margin.evaluation.tail_iou_metric import TailIoUMetric, class_iou

from .runs import read_json

CURVES_FILE = 'curves.json'
# The parts of JaccardLoss, which it reports as scalars of each head.
PARTS = ('jaccard', 'ce', 'ce_weight')
# Of an iteration, and of the values of the curves there.
OnPoint = Callable[[int, dict[str, float]], None]


@METRICS.register_module()
class ClassIoUMetric(TailIoUMetric):
    """Keeps in ``class_iou`` what upstream only prints as a table."""

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        """Write class indices; for a server upstream would start at 1."""
        unchanged = {'reduce_zero_label': False}
        super().process(data_batch, [{**s, **unchanged} for s in data_samples])

    def compute_metrics(self, results: list) -> dict[str, float]:
        found = class_iou(results).tolist()
        self.class_iou = [None if math.isnan(iou) else iou for iou in found]
        return super().compute_metrics(results)


@HOOKS.register_module()
class CurvesHook(Hook):
    """Loss and mIoU on some training and validation images, as in Figure 3.

    Both are measured without augmentation and in evaluation mode, so that
    they can be compared with each other. If the loss reports its parts as
    scalars, these are added. The points are kept in ``curves.json`` in the
    work dir; ``seconds`` has the time of every iteration, without that of the
    measuring. ``on_point``, if set, is called with each new point.

    Args:
        datasets: Data set configs for ``'train'`` and ``'val'``, with the
            pipeline of the validation.
        interval: Iterations between two points.
        images: Number of evenly spaced images of each data set.
    """

    def __init__(
        self, datasets: dict[str, dict], interval: int, images: int = 20
    ) -> None:
        self.datasets = datasets
        self.interval = interval
        self.images = images
        self.curves: dict[str, list[tuple[int, float]]] = {}
        self.seconds: list[float] = []
        self.on_point: OnPoint | None = None
        self._chosen: dict[str, Any] = {}
        self._started = 0.0

    def before_train(self, runner: Runner) -> None:
        self.path = Path(runner.work_dir, CURVES_FILE)
        # Go on with the points up to the checkpoint that is resumed.
        if runner.iter > 0 and self.path.exists():
            curves: dict[str, list] = read_json(dict, self.path)
            for name, points in curves.items():
                self.curves[name] = [p for p in points if p[0] <= runner.iter]
        for split, config in self.datasets.items():
            dataset = DATASETS.build(config)
            chosen = evenly_spaced(len(dataset), self.images)
            self._chosen[split] = Subset(dataset, chosen)

    def before_train_iter(self, runner: Runner, *args, **kwargs) -> None:
        self._started = time.perf_counter()

    def after_train_iter(self, runner: Runner, *args, **kwargs) -> None:
        self.seconds.append(time.perf_counter() - self._started)
        if not self.every_n_train_iters(runner, self.interval):
            return
        # Before measuring, which computes losses of other images.
        figures = {
            key.removeprefix('train/'): float(scalar.mean(self.interval))
            for key, scalar in runner.message_hub.log_scalars.items()
            if key.rpartition('.')[2] in PARTS
        }
        for split, images in self._chosen.items():
            for name, value in measure(runner.model, images).items():
                figures[f'{split}_{name}'] = value
        for name, value in figures.items():
            points = self.curves.setdefault(name, [])
            points.append((runner.iter + 1, value))
        atomic_write_text(self.path, json.dumps(self.curves))
        if self.on_point:
            self.on_point(runner.iter + 1, figures)


@torch.no_grad()
def measure(model: Any, images: Any) -> dict[str, float]:
    """Mean ``loss`` of the decode head, and ``mIoU`` in percent."""
    if is_model_wrapper(model):
        model = model.module
    heads = model.decode_head
    head: Any = heads[-1] if isinstance(heads, nn.ModuleList) else heads
    metric = IoUMetric(iou_metrics=['mIoU'])
    metric.dataset_meta = images.dataset.metainfo
    losses = []
    was_training = model.training
    model.eval()
    for image in images:
        (sample,) = model.val_step(pseudo_collate([image]))
        metric.process({}, [sample.to_dict()])
        terms = head.loss_by_feat(sample.seg_logits.data[None], [sample])
        losses.append(float(model.parse_losses(terms)[0]))
    model.train(was_training)
    miou = float(np.nanmean(class_iou(metric.results)))
    return {'loss': float(np.mean(losses)), 'mIoU': miou}
