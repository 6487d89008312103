"""What is measured of a run: the IoU of each class, curves, and time."""

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from mmengine.dataset import pseudo_collate
from mmengine.hooks import Hook
from mmengine.runner import Runner
from mmseg.registry import DATASETS, HOOKS, METRICS
from torch import nn
from torch.utils.data import Subset

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.config_tools import evenly_spaced
from mmseg_margin.evaluation.tail_iou_metric import TailIoUMetric, class_iou
from mmseg_margin.heads import bare_model

SECONDS_FILE = 'seconds.txt'
# After so many their time is known well enough for an estimate.
FIRST_ITERATIONS = 10


@METRICS.register_module()
class ClassIoUMetric(TailIoUMetric):
    """Keeps ``class_iou`` (K,) and the indices of the ``predicted`` classes.

    Upstream's metric only prints the IoU of each class as a table.
    """

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        """Write class indices; for a server upstream would start at 1."""
        unchanged = {'reduce_zero_label': False}
        super().process(data_batch, [{**s, **unchanged} for s in data_samples])

    def compute_metrics(self, results: list) -> dict[str, float]:
        self.class_iou = class_iou(results)
        areas = torch.stack([predicted for _, _, predicted, _ in results])
        self.predicted = areas.sum(0).nonzero().flatten().tolist()
        return super().compute_metrics(results)


@HOOKS.register_module()
class CurvesHook(Hook):
    """Loss and mIoU on some training and validation images, as in Figure 3.

    Both are measured without augmentation and in evaluation mode, so that
    they can be compared with each other. The points are kept in the
    checkpoints; ``seconds.txt`` in the work dir has the median time of the
    first iterations.

    Args:
        datasets: Data set configs for ``'train'`` and ``'val'``, with the
            pipeline of the validation.
        evaluator: Config of a ClassIoUMetric.
        interval: Iterations between two points.
        images: Number of evenly spaced images of each data set.
    """

    def __init__(
        self,
        datasets: dict[str, dict],
        evaluator: dict[str, Any],
        interval: int,
        images: int,
    ) -> None:
        self.datasets = datasets
        self.evaluator = evaluator
        self.interval = interval
        self.images = images
        self.curves: dict[str, list[tuple[int, float]]] = {}
        self.seconds: list[float] = []

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        self.curves = checkpoint.get('curves', {})

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        checkpoint['curves'] = self.curves

    def before_train(self, runner: Runner) -> None:
        if runner.iter == 0:
            self.curves = {}  # not those of the checkpoint to start from
        self.metric = METRICS.build(self.evaluator)
        self.chosen = {}
        for split, config in self.datasets.items():
            dataset = DATASETS.build(config)
            places = evenly_spaced(len(dataset), self.images)
            self.chosen[split] = Subset(dataset, places)

    def before_train_iter(self, runner: Runner, *args, **kwargs) -> None:
        self.started = time.perf_counter()

    def after_train_iter(self, runner: Runner, *args, **kwargs) -> None:
        self.seconds.append(time.perf_counter() - self.started)
        if len(self.seconds) == min(FIRST_ITERATIONS, runner.max_iters):
            path = Path(runner.work_dir, SECONDS_FILE)
            atomic_write_text(path, str(median(self.seconds)))
        if not self.every_n_train_iters(runner, self.interval):
            return
        model = bare_model(runner.model)
        for split, images in self.chosen.items():
            for name, value in measure(model, images, self.metric).items():
                points = self.curves.setdefault(f'{split}_{name}', [])
                points.append((runner.iter + 1, value))


@torch.no_grad()
def measure(
    model: Any, images: Any, metric: ClassIoUMetric
) -> dict[str, float]:
    """Mean ``loss`` of the decode head, and ``mIoU`` in percent."""
    heads = model.decode_head
    head: Any = heads[-1] if isinstance(heads, nn.ModuleList) else heads
    metric.dataset_meta = images.dataset.metainfo
    metric.results.clear()
    losses = []
    was_training = model.training
    model.eval()
    for image in images:
        (sample,) = model.val_step(pseudo_collate([image]))
        metric.process({}, [sample.to_dict()])
        scores = sample.seg_logits.data
        terms = head.loss_by_feat(scores[None], [sample])
        losses.append(float(model.parse_losses(terms)[0]))
    model.train(was_training)
    miou = float(np.nanmean(class_iou(metric.results)))
    return {'loss': float(np.mean(losses)), 'mIoU': miou}
