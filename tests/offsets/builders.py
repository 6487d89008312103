"""A network that has learnt a little, with biases disturbed on purpose."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from mmengine.config import Config
from mmengine.runner import Runner
from PIL import Image
from torch import Tensor

from tests.layouts import label_array, write_label
from tests.small_training import PLAIN, add_validation, training_config

COLOURS = np.array(
    [(60, 90, 200), (120, 120, 120), (40, 160, 60), (200, 60, 60)]
)
DISTURBANCE = torch.tensor([1.5, 0.0, -1.0, -2.0])
SPLITS = {'train': 16, 'val': 8}
BIAS = 'decode_head.conv_seg.bias'
CROSS_ENTROPY = {'type': 'CrossEntropyLoss'}


def mean_metric(
    scores: Tensor, labels: Tensor, offsets: Tensor, metric: str = 'mIoU'
) -> float:
    """Mean IoU or Dice of the labelled classes, by sets of pixels."""
    predicted = (scores + offsets).argmax(1)
    values = []
    for k in labels.unique().tolist():
        hit = int(((predicted == k) & (labels == k)).sum())
        both = int((predicted == k).sum() + (labels == k).sum())
        dice = metric == 'mDice'
        values.append(2 * hit / both if dice else hit / (both - hit))
    return sum(values) / len(values)


class World(NamedTuple):
    """A config file, the checkpoint of its network and its bias."""

    config: Path
    checkpoint: Path
    bias: str = BIAS

    def load(self, work_dir: Path, **settings: Any) -> Config:
        """The config for one run with a work dir of its own."""
        cfg = Config.fromfile(self.config)
        cfg.merge_from_dict(settings)
        cfg.work_dir = str(work_dir)
        cfg.experiment_name = f'{work_dir.parent.name}_{work_dir.name}'
        return cfg

    def runner(self, work_dir: Path, **settings: Any) -> Runner:
        runner = Runner.from_cfg(self.load(work_dir, **settings))
        runner.load_checkpoint(str(self.checkpoint))
        return runner


def write_images(root: Path, values=(0, 1, 2, 3, 255)) -> Path:
    """Every class in its colour, under noise that the network cannot undo."""
    for split, count in SPLITS.items():
        for index in range(count):
            seed = 100 * len(split) + index
            label = label_array((48, 32), values, seed)
            noise = np.random.default_rng(seed).normal(0, 60, (32, 48, 3))
            pixels = COLOURS[label % 5 % 4] + noise
            path = root / split / 'img' / f'{index:04d}.png'
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)
            write_label(root / split / 'ann' / path.name, label)
    return root


def offsets_config(root: Path, work_dir: Path, max_iters: int = 60) -> Config:
    """A config with a training, a validation and a test."""
    cfg = training_config(
        root / 'train', work_dir, max_iters=max_iters, pipeline=PLAIN
    )
    cfg.model.decode_head.loss_decode = CROSS_ENTROPY
    cfg.custom_hooks = []
    cfg.default_hooks.checkpoint.interval = max_iters
    add_validation(cfg, max_iters)
    cfg.val_dataloader.dataset.data_root = str(root / 'val')
    cfg.val_dataloader.sampler.shuffle = False
    cfg.test_dataloader = cfg.val_dataloader
    cfg.test_evaluator = cfg.val_evaluator
    cfg.test_cfg = {'type': 'TestLoop'}
    # What upstream's inference on single images needs.
    cfg.test_pipeline = list(PLAIN)
    cfg.visualizer = {'type': 'SegLocalVisualizer'}
    return cfg


def make_world(folder: Path, head: str = 'plain') -> World:
    """Train for a second, and disturb the biases.

    Args:
        folder: Of the images, the config and the checkpoint.
        head: ``'plain'``, ``'binary'``, or ``'cascade'``, which also has an
            auxiliary head.
    """
    is_binary = head == 'binary'
    values = (0, 1, 255) if is_binary else (0, 1, 2, 3, 255)
    cfg = offsets_config(
        write_images(folder / 'data', values), folder / 'work_dir'
    )
    disturbance, bias = DISTURBANCE, BIAS
    if is_binary:
        disturbance = torch.tensor([-2.0])
        cfg.model.decode_head.update(
            num_classes=2,
            out_channels=1,
            threshold=0.4,
            loss_decode=CROSS_ENTROPY | {'use_sigmoid': True},
        )
        for split in ('train', 'val', 'test'):
            dataset = cfg[f'{split}_dataloader'].dataset
            dataset.metainfo = {'classes': ('sky', 'road')}
    if head == 'cascade':
        first = cfg.model.decode_head
        last = {'type': 'OCRHead', 'ocr_channels': 4, 'dropout_ratio': 0.0}
        common = ('in_channels', 'in_index', 'channels', 'num_classes')
        last |= {key: first[key] for key in (*common, 'loss_decode')}
        cfg.model.update(type='CascadeEncoderDecoder', num_stages=2)
        cfg.model.auxiliary_head = first
        cfg.model.decode_head = [first, last]
        bias = 'decode_head.1.conv_seg.bias'
    world = World(folder / 'config.py', folder / 'model.pth', bias)
    Runner.from_cfg(cfg).train()
    cfg.dump(world.config)
    checkpoint = torch.load(
        folder / 'work_dir' / 'iter_60.pth', weights_only=False
    )
    checkpoint['state_dict'][bias] += disturbance
    torch.save(checkpoint, world.checkpoint)
    return world
