"""A network that has learnt a little, with biases disturbed on purpose."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from mmengine.config import Config
from mmengine.runner import Runner
from PIL import Image

from tests.layouts import label_array, write_label
from tests.small_training import PLAIN, add_validation, training_config

COLOURS = np.array(
    [(60, 90, 200), (120, 120, 120), (40, 160, 60), (200, 60, 60)]
)
DISTURBANCE = torch.tensor([1.5, 0.0, -1.0, -2.0])
SPLITS = {'train': 16, 'val': 8}
BIAS = 'decode_head.conv_seg.bias'
CROSS_ENTROPY = {'type': 'CrossEntropyLoss'}


class World(NamedTuple):
    """A config file and the checkpoint of its network."""

    config: Path
    checkpoint: Path

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
    return cfg


def make_world(folder: Path, is_binary: bool = False) -> World:
    """Train for a second, and disturb the biases."""
    values = (0, 1, 255) if is_binary else (0, 1, 2, 3, 255)
    cfg = offsets_config(
        write_images(folder / 'data', values), folder / 'work_dir'
    )
    if is_binary:
        cfg.model.decode_head.update(
            num_classes=2,
            out_channels=1,
            threshold=0.4,
            loss_decode=CROSS_ENTROPY | {'use_sigmoid': True},
        )
        for split in ('train', 'val', 'test'):
            dataset = cfg[f'{split}_dataloader'].dataset
            dataset.metainfo = {'classes': ('sky', 'road')}
    world = World(folder / 'config.py', folder / 'model.pth')
    Runner.from_cfg(cfg).train()
    cfg.dump(world.config)
    checkpoint = torch.load(
        folder / 'work_dir' / 'iter_60.pth', weights_only=False
    )
    disturbance = torch.tensor([-2.0]) if is_binary else DISTURBANCE
    checkpoint['state_dict'][BIAS] += disturbance
    torch.save(checkpoint, world.checkpoint)
    return world
