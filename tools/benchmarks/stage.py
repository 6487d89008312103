"""The loss stage of a head: up-sampling, loss, accuracy and backward."""

import argparse
from collections.abc import Sequence

from mmseg.models.losses import accuracy
from mmseg.models.utils import resize
from torch import Tensor

from mmseg_margin.losses.fused_stage import fused_loss

from .loss import OURS, WITH_BACKENDS, build
from .measuring import (
    Step,
    add_loss_arguments,
    measure_losses,
    parse_shape,
    random_batch,
)

# N, K, H, W of the labels, and the scale of the up-sampling.
SHAPES = [
    '2x19x512x1024x4',
    '2x19x512x1024x8',
    '2x150x512x512x4',
    '2x171x512x512x8',
]
MMSEG = ['ce', 'lovasz', *WITH_BACKENDS]
FUSED = [f'{name}, fused' for name in ('ce', *WITH_BACKENDS)]
DEFAULT_BACKENDS = [*OURS, *(f'{name}, fused' for name in OURS)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--shapes',
        nargs='+',
        default=SHAPES,
        help='NxKxHxWxS, for each batch; S is the scale of the up-sampling',
    )
    names = [*MMSEG, *FUSED]
    add_loss_arguments(parser, names, [*names, *DEFAULT_BACKENDS], repeats=7)


def run(args: argparse.Namespace) -> None:
    """Measure, and print tables."""
    measure_losses(args, 'loss stage', make_stages)


def make_stages(shape: str, names: Sequence[str]) -> dict[str, Step]:
    *sizes, scale = parse_shape(shape, 'NxKxHxWxS')
    batch = random_batch(sizes, scale)
    return {name: make_stage(name, *batch) for name in names}


def make_stage(name: str, low: Tensor, labels: Tensor) -> Step:
    """mmseg's loss stage with an objective, or the fused one."""
    loss = build(name.removesuffix(', fused'), low.shape[1])

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
        value, _ = fused_loss(loss, leaf, labels)
        value.backward()

    return fused_stage if name.endswith(', fused') else stage
