"""A training step with and without fused loss stages."""

import argparse
from types import SimpleNamespace

import torch
from mmengine.config import Config
from mmengine.hub import get_config
from mmengine.model import revert_sync_batchnorm
from mmengine.structures import PixelData
from mmseg.registry import MODELS
from mmseg.structures import SegDataSample

from mmseg_margin.hooks import FusedLossHook
from mmseg_margin.losses.objectives import parse_objective
from mmseg_margin.losses.swap import swap_losses

from . import measuring
from .measuring import Step, device, parse_shape

CONFIGS = [
    'mmseg::deeplabv3plus/'
    'deeplabv3plus_r50-d8_4xb2-40k_cityscapes-512x1024.py',
    'mmseg::fastscnn/fast_scnn_8xb4-160k_cityscapes-512x1024.py',
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--configs', nargs='+', default=CONFIGS)
    parser.add_argument('--shape', default='2x256x512', help='NxHxW')
    measuring.add_arguments(parser, repeats=3)


def run(args: argparse.Namespace) -> None:
    """Measure, and print tables."""
    measuring.prepare(args)
    for name in args.configs:
        config = get_config(name) if '::' in name else Config.fromfile(name)
        sizes = parse_shape(args.shape, 'NxHxW')
        steps = {
            f'{loss}, fused' if fused else loss: make_step(
                config, sizes, loss, fused
            )
            for loss in ('ce', 'margin')
            for fused in (False, True)
        }
        figures = measuring.measure(steps, args.repeats)
        measuring.print_figures(f'{name}, {args.shape}, step', figures)


def make_step(
    config: Config, sizes: list[int], objective: str, fused: bool
) -> Step:
    """Forward, backward and an update of the weights."""
    N, H, W = sizes
    model_config = dict(config.model, pretrained=None, init_cfg=None)
    model_config['data_preprocessor'] = dict(type='SegDataPreProcessor')
    torch.manual_seed(0)
    model = revert_sync_batchnorm(MODELS.build(model_config)).to(device())
    swap_losses(model, parse_objective(objective))
    for loss in model.modules():
        if hasattr(loss, 'set_class_counts'):
            K = model.decode_head.num_classes
            loss.set_class_counts([10**9 // (k + 1) for k in range(K)])
    if fused:
        FusedLossHook().before_train(SimpleNamespace(model=model))
    images = torch.rand(N, 3, H, W, device=device())
    samples = []
    for _ in range(N):
        labels = torch.randint(0, 19, (1, H, W), device=device())
        sample = SegDataSample(gt_sem_seg=PixelData(data=labels))
        samples.append(sample)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        losses = model.loss(images, samples)
        sum(v.sum() for k, v in losses.items() if 'loss' in k).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
