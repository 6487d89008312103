"""The loss stage of a head: up-sampling, loss, accuracy and backward."""

import argparse
import json
import warnings
from pathlib import Path

import torch
from mmengine.registry import init_default_scope
from mmseg.models.losses import accuracy
from mmseg.models.utils import resize
from torch import Tensor

from mmseg_margin.losses.fused_stage import fusable

from .loss import OURS, build
from .measuring import (
    Figures,
    Step,
    measure,
    parse_shape,
    print_table,
    random_batch,
)

# N, K, H, W of the labels, and how much smaller the scores are.
SHAPES = [
    '2x19x512x1024x4',
    '2x19x512x1024x8',
    '2x150x512x512x4',
    '2x171x512x512x8',
]
MMSEG = ['ce', 'lovasz', *OURS]
FUSED = [f'{name}, fused' for name in ('ce', *OURS)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--shapes',
        nargs='+',
        default=SHAPES,
        help='NxKxHxWxS, for each batch; S is the scale of the up-sampling',
    )
    names = [*MMSEG, *FUSED]
    parser.add_argument(
        '--losses', nargs='+', default=names, choices=names, metavar='NAME'
    )
    parser.add_argument('--repeats', type=int, default=7)
    parser.add_argument('--threads', type=int, default=1)
    parser.add_argument('--json', type=Path, help='file for the figures')


def run(args: argparse.Namespace) -> dict[str, Figures]:
    """Measure, print tables, and return all figures."""
    warnings.simplefilter('ignore')
    torch.set_num_threads(args.threads)
    init_default_scope('mmseg')
    results = {}
    for shape in args.shapes:
        *sizes, scale = parse_shape(shape, 'NxKxHxWxS')
        low, labels = random_batch(sizes, scale)
        results[shape] = measure(
            {
                name: make_stage(name, low, labels)
                for name in dict.fromkeys(['ce', *args.losses])
            },
            args.repeats,
        )
        print_table(f'{shape}, loss stage', results[shape])
        torch.compiler.reset()
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + '\n', 'utf-8')
    return results


def make_stage(name: str, low: Tensor, labels: Tensor) -> Step:
    """mmseg's stage with an objective, or the fused one."""
    loss = build(name.removesuffix(', fused'), low.shape[1])
    fused = fusable(loss) if name.endswith(', fused') else None

    def stage() -> None:
        leaf = low.detach().requires_grad_()
        scores = resize(
            leaf,
            size=labels.shape[1:],
            mode='bilinear',
            align_corners=False,
        )
        value = loss(scores, labels, ignore_index=255)
        accuracy(scores, labels, ignore_index=255)
        value.sum().backward()

    def fused_stage() -> None:
        leaf = low.detach().requires_grad_()
        value, _ = fused.fused_stage(leaf, labels, 255, False)
        value.backward()

    return stage if fused is None else fused_stage
