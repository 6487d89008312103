"""The loss stage of a head: up-sampling, loss, accuracy and backward."""

import argparse
import sys
from collections.abc import Sequence
from unittest.mock import patch

from mmseg.models.losses import accuracy
from mmseg.models.utils import resize
from torch import Tensor

from mmseg_margin.functional import upsampling
from mmseg_margin.losses.fused_stage import fused_loss

from .loss import OURS, WITH_BACKENDS, build
from .measuring import (
    Step,
    add_loss_arguments,
    measure_losses,
    parse_shape,
    random_batch,
)

# N, K, H, W of the labels, and the scale of the up-sampling: from the sizes
# of the small recipes to those of upstream's.
SHAPES = [
    '4x5x48x48x4',
    '4x5x128x128x4',
    '4x11x112x144x4',
    '2x59x144x112x4',
    '2x19x128x256x4',
    '2x19x256x512x4',
    '2x19x512x1024x4',
    '2x150x512x512x4',
]
# How scores are up-sampled: as a training chooses, or one way for all sizes.
FUSED = {
    ', fused': upsampling.SMALL_IMAGE,
    ', fused by rows': 0,
    ', fused by image': sys.maxsize,
}
SERVED = ('ce', *OURS, *WITH_BACKENDS)
CHOICES = [
    *('ce', 'lovasz', *OURS, *WITH_BACKENDS),
    *(name + how for name in SERVED for how in FUSED),
]
DEFAULT = [name + how for name in ('ce', *OURS) for how in ('', *FUSED)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--shapes',
        nargs='+',
        default=SHAPES,
        help='NxKxHxWxS, for each batch; S is the scale of the up-sampling',
    )
    add_loss_arguments(parser, DEFAULT, CHOICES, repeats=7)


def run(args: argparse.Namespace) -> None:
    """Measure, and print tables."""
    measure_losses(args, 'loss stage', make_stages)


def make_stages(shape: str, names: Sequence[str]) -> dict[str, Step]:
    *sizes, scale = parse_shape(shape, 'NxKxHxWxS')
    batch = random_batch(sizes, scale)
    return {name: make_stage(name, *batch) for name in names}


def make_stage(name: str, low: Tensor, labels: Tensor) -> Step:
    """mmseg's loss stage with an objective, or the fused one."""
    how = next((how for how in FUSED if name.endswith(how)), '')
    loss = build(name.removesuffix(how), low.shape[1])

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
        with patch.object(upsampling, 'SMALL_IMAGE', FUSED[how]):
            value, _ = fused_loss(loss, leaf, labels)
        value.backward()

    return fused_stage if how else stage
