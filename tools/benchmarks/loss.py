"""Forward and backward time and peak extra memory of the objectives."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from mmseg_margin.losses.objectives import OBJECTIVES, build_loss

from .measuring import (
    Figures,
    Step,
    add_loss_arguments,
    device,
    measure_losses,
    parse_shape,
    random_batch,
    ratio,
)

# N, K, H, W of the recipes' batches.
SHAPES = ['2x19x512x1024', '2x21x512x512', '2x150x512x512', '2x171x384x384']
TRANSCRIPTION = 'transcription'
BASELINES = ['ce', 'focal', 'lovasz', 'dice', TRANSCRIPTION]
# A name alone stands for the backend that a training would choose.
OURS = [name for name in OBJECTIVES if name.startswith(('margin', 'jaccard'))]
BACKENDS = ('eager', 'compiled')
WITH_BACKENDS = [f'{name}, {backend}' for name in OURS for backend in BACKENDS]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--shapes', nargs='+', default=SHAPES, help='NxKxHxW, for each batch'
    )
    names = [*BASELINES, *WITH_BACKENDS]
    add_loss_arguments(parser, names, [*names, *OURS], repeats=9)
    parser.add_argument('--plot', type=Path, help='picture of the ratios')


def run(args: argparse.Namespace) -> None:
    """Measure, print tables, and draw a picture of them."""
    results = measure_losses(args, 'forward and backward', make_steps)
    if args.plot:
        plot(results, args.plot)


def make_steps(shape: str, names: Sequence[str]) -> dict[str, Step]:
    scores, labels = random_batch(parse_shape(shape))
    K = scores.shape[1]
    return {name: make_step(build(name, K), scores, labels) for name in names}


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


def make_step(loss: torch.nn.Module, scores: Tensor, labels: Tensor) -> Step:
    """Forward and backward of a loss."""

    def step() -> None:
        leaf = scores.detach().requires_grad_()
        loss(leaf, labels, ignore_index=255).sum().backward()

    return step


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
