"""Forward and backward time and peak extra memory of the objectives."""

import argparse
import json
import warnings
from pathlib import Path

import torch
from mmengine.registry import init_default_scope
from torch import Tensor

from mmseg_margin.losses import MarginCalibrationLoss
from mmseg_margin.losses.objectives import OBJECTIVES, build_loss

from .measuring import (
    Figures,
    Step,
    device,
    measure,
    parse_shape,
    print_table,
    random_batch,
    ratio,
)

# N, K, H, W of the recipes' batches.
SHAPES = ['2x19x512x1024', '2x21x512x512', '2x150x512x512', '2x171x384x384']
TRANSCRIPTION = 'transcription'
PRESETS = ('margin', 'margin-paper', 'margin-authors')
BACKENDS = ('eager', 'compiled')
OURS = [f'{name}, {backend}' for name in PRESETS for backend in BACKENDS]
NAMES = ['ce', 'focal', 'lovasz', 'dice', TRANSCRIPTION, *OURS]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--shapes', nargs='+', default=SHAPES, help='NxKxHxW, for each batch'
    )
    parser.add_argument(
        '--losses', nargs='+', default=NAMES, choices=NAMES, metavar='NAME'
    )
    parser.add_argument('--repeats', type=int, default=9)
    parser.add_argument('--threads', type=int, default=1)
    parser.add_argument('--json', type=Path, help='file for the figures')
    parser.add_argument('--plot', type=Path, help='picture of the ratios')


def run(args: argparse.Namespace) -> dict[str, Figures]:
    """Measure, print tables, and return all figures."""
    warnings.simplefilter('ignore')
    torch.set_num_threads(args.threads)
    init_default_scope('mmseg')
    results = {}
    for shape in args.shapes:
        scores, labels = random_batch(parse_shape(shape))
        steps = {
            name: make_step(build(name, scores.shape[1]), scores, labels)
            for name in dict.fromkeys(['ce', *args.losses])
        }
        results[shape] = measure(steps, args.repeats)
        print_table(f'{shape}, forward and backward', results[shape])
        torch.compiler.reset()
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + '\n', 'utf-8')
    if args.plot:
        plot(results, args.plot)
    return results


def build(name: str, num_classes: int) -> torch.nn.Module:
    """An objective by its name, ours with the backend after a comma."""
    if name == TRANSCRIPTION:
        return Transcription(num_classes).to(device())
    name, _, backend = name.partition(', ')
    config = dict(OBJECTIVES[name])
    if backend:
        config['backend'] = backend
    loss = build_loss(config)
    if isinstance(loss, MarginCalibrationLoss):
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
        own = labels.unsqueeze(1) == classes.view(1, -1, 1, 1)
        exponent = torch.where(own, self.rho - margin, self.rho + margin)
        terms = torch.log2(1 + torch.exp2(exponent)).sum(1)
        return terms[labels != ignore_index].mean()


def make_step(loss: torch.nn.Module, scores: Tensor, labels: Tensor) -> Step:
    """Forward and backward of a loss."""

    def step() -> None:
        leaf = scores.detach().requires_grad_()
        loss(leaf, labels, ignore_index=255).sum().backward()

    return step


def plot(results: dict[str, Figures], path: Path) -> None:
    """Bars of the ratios to cross-entropy."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(results), 3.2), layout='constrained')
    axes = figure.subplots(1, len(results), squeeze=False)[0]
    for axis, (shape, result) in zip(axes, results.items(), strict=True):
        names = list(result)
        values = [ratio(result, 'seconds', name) for name in names]
        colours = ['tab:red' if 'margin' in n else 'tab:gray' for n in names]
        axis.barh(names, values, color=colours)
        axis.bar_label(axis.containers[0], fmt='%.2f', padding=2)
        axis.set_xscale('log')
        axis.axvline(1, color='black', linewidth=0.8)
        axis.invert_yaxis()
        axis.margins(x=0.25)
        axis.set_title(f'{shape}\ntime, cross-entropy = 1', fontsize=9)
    figure.savefig(path, dpi=120)
