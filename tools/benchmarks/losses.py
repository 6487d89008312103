"""Time and memory of the objectives, alone and in the loss stage of a head.

``loss`` is forward and backward on full-size scores, ``stage`` is
up-sampling, loss, accuracy and backward.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import torch
from mmseg.models.losses import accuracy
from mmseg.models.utils import resize
from torch import Tensor

from mmseg_margin.errors import SettingError, did_you_mean
from mmseg_margin.functional import upsampling
from mmseg_margin.losses.fused_stage import fused_loss
from mmseg_margin.losses.objectives import OBJECTIVES, build_loss

from . import measuring
from .measuring import Figures, Step, device, parse_shape, ratio

TRANSCRIPTION = 'transcription'
BASELINES = ['ce', 'focal', 'lovasz', 'dice', TRANSCRIPTION]
# A name alone stands for the backend that a training would choose.
OURS = [name for name in OBJECTIVES if name.startswith(('margin', 'jaccard'))]
BACKENDS = ('eager', 'compiled')
WITH_BACKENDS = [f'{name}, {backend}' for name in OURS for backend in BACKENDS]
# How scores are up-sampled: as a training chooses, or one way for all sizes.
FUSED = {
    ', fused': upsampling.SMALL_IMAGE,
    ', fused by rows': 0,
    ', fused by image': sys.maxsize,
}


class Subject(NamedTuple):
    """What is measured of the losses, and on which batches."""

    title: str
    make_step: Callable[[str, Tensor, Tensor], Step]
    letters: str
    shapes: list[str]
    losses: list[str]
    choices: list[str]

    def run(self, args: argparse.Namespace) -> None:
        """Measure cross-entropy and the losses on each shape."""
        measuring.prepare(args)
        results = {}
        losses = args.losses or self.losses
        for name in losses:
            if name not in self.choices:
                raise SettingError(
                    f'{name!r} is not one of {"; ".join(self.choices)}.'
                    f'{did_you_mean(name, self.choices)}'
                )
        for shape in args.shapes or self.shapes:
            batch = random_batch(*parse_shape(shape, self.letters))
            steps = {
                name: self.make_step(name, *batch)
                for name in dict.fromkeys(['ce', *losses])
            }
            results[shape] = measuring.measure(steps, args.repeats)
            measuring.print_figures(f'{shape}, {self.title}', results[shape])
            torch.compiler.reset()
        measuring.write_json(args.json, results)
        if args.plot:
            plot(results, args.plot)


def random_batch(
    N: int, K: int, H: int, W: int, scale: int = 1
) -> tuple[Tensor, Tensor]:
    """Scores (N, K, H / scale, W / scale) and labels (N, H, W)."""
    torch.manual_seed(0)
    scores = 3 * torch.randn(N, K, H // scale, W // scale, device=device())
    labels = torch.randint(0, K, (N, H, W), device=device())
    labels[torch.rand(N, H, W, device=device()) < 0.05] = 255
    return scores, labels


def make_step(name: str, scores: Tensor, labels: Tensor) -> Step:
    """Forward and backward of a loss."""
    loss = build(name, scores.shape[1])

    def step() -> None:
        leaf = scores.detach().requires_grad_()
        loss(leaf, labels, ignore_index=255).sum().backward()

    return step


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


def build(name: str, num_classes: int) -> torch.nn.Module:
    """A loss by the name of its objective and, after a comma, its backend."""
    if name == TRANSCRIPTION:
        return Transcription(num_classes).to(device())
    name, _, backend = name.partition(', ')
    config = dict(OBJECTIVES[name])
    if backend:
        config['backend'] = backend
    if name == 'jaccard':
        config['ce_ramp'] = 0  # the whole cost, as at the end of a training
    loss = build_loss(config)
    if hasattr(loss, 'set_class_counts'):
        loss.set_class_counts([10**9 // (k + 1) for k in range(num_classes)])
    return loss.to(device())


class Transcription(torch.nn.Module):
    """Algorithm 2 line by line in differentiable torch."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.register_buffer('rho', torch.full((1, num_classes, 1, 1), 0.1))

    def forward(
        self, scores: Tensor, labels: Tensor, ignore_index: int
    ) -> Tensor:
        top = scores.topk(2, dim=1).values
        others = torch.where(scores == top[:, :1], top[:, 1:], top[:, :1])
        margin = scores - others
        classes = torch.arange(scores.shape[1], device=scores.device)
        is_label = labels.unsqueeze(1) == classes.view(1, -1, 1, 1)
        exponent = torch.where(is_label, self.rho - margin, self.rho + margin)
        terms = torch.log2(1 + torch.exp2(exponent)).sum(1)
        return terms[labels != ignore_index].mean()


def plot(results: dict[str, Figures], path: Path) -> None:
    """Draw bars of the ratios to cross-entropy."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    figure = Figure(figsize=(4.2 * len(results), 3.2), layout='constrained')
    axes = figure.subplots(1, len(results), squeeze=False)[0]
    for axis, (shape, result) in zip(axes, results.items(), strict=True):
        names = list(result)
        values = [ratio(result, 'seconds', name) for name in names]
        colours = [
            'tab:red' if n.startswith(tuple(OURS)) else 'tab:gray'
            for n in names
        ]
        axis.barh(names, values, color=colours)
        axis.bar_label(axis.containers[0], fmt='%.2f', padding=2)
        axis.set_xscale('log')
        # The bars are labelled; labels of minor ticks would overlap.
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.xaxis.set_major_formatter('{x:g}')
        axis.axvline(1, color='black', linewidth=0.8)
        axis.invert_yaxis()
        axis.margins(x=0.25)
        axis.set_title(f'{shape}\ntime, cross-entropy = 1', fontsize=9)
    figure.savefig(path, dpi=120)


SERVED = ['ce', *OURS, *WITH_BACKENDS]
LOSS = Subject(
    'forward and backward',
    make_step,
    'NxKxHxW',
    # Of the recipes' batches.
    ['2x19x512x1024', '2x21x512x512', '2x150x512x512', '2x171x384x384'],
    [*BASELINES, *WITH_BACKENDS],
    [*BASELINES, *WITH_BACKENDS, *OURS],
)
STAGE = Subject(
    'loss stage',
    make_stage,
    'NxKxHxWxS',
    # From the sizes of the small recipes to those of upstream's.
    [
        '4x5x48x48x4',
        '4x5x128x128x4',
        '4x11x112x144x4',
        '2x59x144x112x4',
        '2x19x128x256x4',
        '2x19x256x512x4',
        '2x19x512x1024x4',
        '2x150x512x512x4',
    ],
    [name + how for name in ('ce', *OURS) for how in ('', *FUSED)],
    [*SERVED, 'lovasz', *(name + how for name in SERVED for how in FUSED)],
)
