"""Carries out one run, and measures its curves and the IoU of each class.

A run has a process of its own, so that memory is measured for one objective
at a time and a failure leaves the other runs alone.
"""

import copy
import json
import math
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from mmengine.config import Config, ConfigDict
from mmengine.dataset import pseudo_collate
from mmengine.hooks import Hook
from mmengine.runner import Runner, find_latest_checkpoint
from mmseg.evaluation import IoUMetric
from mmseg.registry import DATASETS, HOOKS, METRICS
from torch import nn
from torch.utils.data import Subset

from mmseg_margin import config_tools
from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.errors import MissingFileError
from mmseg_margin.evaluation.tail_iou_metric import TailIoUMetric, class_iou
from mmseg_margin.heads import bare_model
from mmseg_margin.losses.objectives import Objective
from mmseg_margin.losses.swap import set_objective
from mmseg_margin.tooling import config_edits
from mmseg_margin.tooling.cli import report_errors
from mmseg_margin.tooling.launch import build_runner, prepare_for_device

from . import runs

CONFIG_FILE, CURVES_FILE = 'run.py', 'curves.json'
FITTED_CHECKPOINT = 'fitted_offsets.pth'
# Each point of the curves costs two tests on so many images.
CURVE_POINTS, CURVE_IMAGES = 5, 10
CHECKPOINTS = 10
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

    on_point: OnPoint | None = None

    def __init__(
        self, datasets: dict[str, dict], interval: int, images: int = 20
    ) -> None:
        self.datasets = datasets
        self.interval = interval
        self.images = images
        self.curves: dict[str, list[tuple[int, float]]] = {}
        self.seconds: list[float] = []

    def before_train(self, runner: Runner) -> None:
        self.path = Path(runner.work_dir, CURVES_FILE)
        # Go on with the points up to the checkpoint that is resumed.
        if runner.iter > 0 and self.path.exists():
            curves: dict[str, list] = runs.read_json(dict, self.path)
            for name, points in curves.items():
                self.curves[name] = [p for p in points if p[0] <= runner.iter]
        self.chosen = {}
        for split, config in self.datasets.items():
            dataset = DATASETS.build(config)
            places = config_tools.evenly_spaced(len(dataset), self.images)
            self.chosen[split] = Subset(dataset, places)

    def before_train_iter(self, runner: Runner, *args, **kwargs) -> None:
        self.started = time.perf_counter()

    def after_train_iter(self, runner: Runner, *args, **kwargs) -> None:
        self.seconds.append(time.perf_counter() - self.started)
        if not self.every_n_train_iters(runner, self.interval):
            return
        # Before measuring, which computes losses of other images.
        figures = {
            key.removeprefix('train/'): float(scalar.mean(self.interval))
            for key, scalar in runner.message_hub.log_scalars.items()
            if key.rpartition('.')[2] in PARTS
        }
        for split, images in self.chosen.items():
            for name, value in measure(
                bare_model(runner.model), images
            ).items():
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


def run_config(
    base: Config,
    objective: Objective,
    seed: int,
    folder: Path,
    start: str | None,
    class_counts: list[int],
) -> Config:
    """The config of a run, which differs in objective and seed alone."""
    cfg = copy.deepcopy(base)
    set_objective(cfg, objective)
    config_tools.add_hook(cfg, 'FusedLossHook')
    iterations = cfg.train_cfg.max_iters
    val = (cfg.get('val_dataloader') or cfg.test_dataloader).dataset
    train = copy.deepcopy(cfg.train_dataloader.dataset)
    for leaf in config_tools.leaf_datasets(train):
        leaf.pipeline = config_tools.leaf_datasets(val)[0].pipeline
    config_tools.add_hook(
        cfg,
        'CurvesHook',
        datasets=ConfigDict(train=train, val=val),
        interval=max(1, iterations // CURVE_POINTS),
        images=CURVE_IMAGES,
    )
    # Registers CurvesHook and ClassIoUMetric.
    config_tools.add_import(cfg, 'mmseg_margin.comparison')
    config_edits.without_validation(cfg)
    cfg.work_dir = str(folder)
    cfg.load_from = start
    cfg.randomness = ConfigDict(seed=seed)
    cfg.default_hooks.checkpoint = ConfigDict(
        type='CheckpointHook',
        by_epoch=False,
        interval=max(1, iterations // CHECKPOINTS),
        # mmengine removes the old one before it writes the new one.
        max_keep_ckpts=2,
    )
    cfg.test_evaluator = ConfigDict(
        type='ClassIoUMetric', iou_metrics=['mIoU'], class_counts=class_counts
    )
    return cfg


def train_and_test(
    cfg: Config, on_point: OnPoint | None = None
) -> dict[str, Any]:
    """Train from the last checkpoint, if any, and test: figures of a run."""
    checkpoint = find_latest_checkpoint(cfg.work_dir)
    if checkpoint:
        cfg.resume, cfg.load_from = True, checkpoint
    prepare_for_device(cfg)
    runner = build_runner(cfg)
    curves = next(h for h in runner.hooks if isinstance(h, CurvesHook))
    curves.on_point = on_point
    runner.train()
    return _test(runner) | {
        'curves': curves.curves,
        'seconds': median(curves.seconds) if curves.seconds else None,
        'memory': _peak_memory() / 2**20,
    }


def measure_fitted(cfg: Config) -> dict[str, Any]:
    """Fit the offsets of a finished training, and test once more."""
    from mmseg_margin.offsets import fit_checkpoint

    folder = Path(cfg.work_dir)
    checkpoint = find_latest_checkpoint(cfg.work_dir)
    if checkpoint is None:
        raise MissingFileError(
            f'{folder} has no checkpoint to fit offsets to: remove its '
            'record.json and give the same command again to train anew.'
        )
    # The fit predicts its images as in a validation.
    cfg.val_dataloader, cfg.val_cfg = cfg.test_dataloader, dict(type='ValLoop')
    cfg.val_evaluator = dict(type='IoUMetric')
    if 'output_dir' in cfg.test_evaluator:
        cfg.test_evaluator.output_dir = str(folder / runs.FITTED_PREDICTIONS)
    # The test loads the checkpoint that the fit writes.
    cfg.load_from, cfg.resume = str(folder / FITTED_CHECKPOINT), False
    # mmengine keeps loggers and message hubs by this name.
    cfg.experiment_name = 'fitted-offsets'
    prepare_for_device(cfg)
    runner = build_runner(cfg)
    target = Path(cfg.load_from)
    fitted = fit_checkpoint(runner, checkpoint, target, force=True)
    return {'offsets': fitted.offsets, **_test(runner)}


def _test(runner: Runner) -> dict[str, Any]:
    metrics = runner.test()
    (metric,) = runner.test_loop.evaluator.metrics
    return {
        'metrics': {
            name: float(value)
            for name, value in metrics.items()
            # The IoU of each class is kept once.
            if isinstance(value, Real) and '/' not in name
        },
        'class_iou': metric.class_iou,
    }


def _peak_memory() -> int:
    """Bytes: of the GPU if there is one, or of the process."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    # Linux counts kibibytes, macOS bytes.
    unit = 1 if sys.platform == 'darwin' else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@report_errors
def main(folder: Path, fit: bool) -> None:
    """Do what is left to do of the run whose config is in a folder."""
    # Two comparisons may be at work in one folder.
    with FileLock(folder / 'lock'):
        run = runs.read_run(folder)
        if not run.is_done():
            figures = train_and_test(Config.fromfile(folder / CONFIG_FILE))
            run = replace(run, **figures)
            runs.write_run(run, folder)
        if not run.is_done(fit):
            fitted = measure_fitted(Config.fromfile(folder / CONFIG_FILE))
            runs.write_run(replace(run, fitted=fitted), folder)


def main_of_process() -> None:
    """Carry out a run, unless the comparison ends before.

    Standard input is a pipe from the comparison, which closes with it.
    """

    def end_with_comparison() -> None:
        # Not through sys.stdin, whose lock Python needs to shut down.
        os.read(0, 1)
        # Two processes in one folder would spoil each other's files.
        os._exit(1)

    threading.Thread(target=end_with_comparison, daemon=True).start()
    main(Path(sys.argv[1]), '--fit-offsets' in sys.argv)
