"""Forward and backward time and peak extra memory of the objectives."""

import argparse
import gc
import json
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from mmseg_margin.losses.objectives import OBJECTIVES

BASELINE = 'cross-entropy'
# N, K, H, W of the recipes' batches.
SHAPES = ['2x19x512x1024', '2x21x512x512', '2x150x512x512', '2x171x384x384']
UPSTREAM = {
    BASELINE: 'ce',
    'focal': 'focal',
    'Lovasz': 'lovasz',
    'Dice': 'dice',
}
OURS = {
    'margin, eager': dict(backend='eager'),
    'margin, compiled': dict(backend='compiled'),
    'margin, Jaccard form': dict(form='jaccard', log_base='e'),
    'margin, softmax form': dict(
        form='softmax', log_base='e', focus=2.0, class_weight=0.2
    ),
}
TRANSCRIPTION = 'transcription'
NAMES = [*UPSTREAM, TRANSCRIPTION, *OURS]


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


def run(args: argparse.Namespace) -> dict:
    warnings.simplefilter('ignore')
    torch.set_num_threads(args.threads)
    console = Console()
    results = {}
    for shape in args.shapes:
        size = tuple(int(part) for part in shape.split('x'))
        results[shape] = measure(size, args.losses, args.repeats)
        console.print(make_table(shape, results[shape]))
        torch.compiler.reset()
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + '\n', 'utf-8')
    if args.plot:
        plot(results, args.plot)
    return results


def measure(
    size: tuple[int, ...], names: list[str], repeats: int
) -> dict[str, dict]:
    """Seconds (all repetitions) and peak extra bytes of each objective."""
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    N, K, H, W = size
    torch.manual_seed(0)
    scores = 3 * torch.randn(size, device=device)
    labels = torch.randint(0, K, (N, H, W), device=device)
    labels[torch.rand(N, H, W, device=device) < 0.05] = 255
    steps = {
        name: make_step(build(name, K).to(device), scores, labels)
        for name in dict.fromkeys([BASELINE, *names])
    }
    for step in steps.values():
        step()
        step()
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - start)
    return {
        name: dict(seconds=seconds[name], bytes=peak_bytes(step, device))
        for name, step in steps.items()
    }


def build(name: str, num_classes: int) -> torch.nn.Module:
    from mmengine.registry import init_default_scope
    from mmseg.registry import MODELS

    init_default_scope('mmseg')
    if name == TRANSCRIPTION:
        return Transcription(num_classes)
    if name in UPSTREAM:
        return MODELS.build(OBJECTIVES[UPSTREAM[name]])
    counts = [10**9 // (k + 1) for k in range(num_classes)]
    return MODELS.build(
        dict(OBJECTIVES['margin'], class_counts=counts, **OURS[name])
    )


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


def make_step(
    loss: torch.nn.Module, scores: Tensor, labels: Tensor
) -> Callable[[], None]:
    def step() -> None:
        leaf = scores.detach().requires_grad_()
        loss(leaf, labels, ignore_index=255).sum().backward()
        if scores.is_cuda:
            torch.cuda.synchronize()

    return step


def peak_bytes(step: Callable[[], None], device: str) -> int:
    """The most memory held at once beyond the scores and the labels."""
    gc.collect()
    if device == 'cuda':
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return torch.cuda.max_memory_allocated() - before
    with profile(
        activities=[ProfilerActivity.CPU], profile_memory=True
    ) as profiler:
        step()
    held = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == '[memory]':
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def ratio(result: dict, key: str, name: str) -> float:
    def value(which: str) -> float:
        measured = result[which][key]
        if isinstance(measured, list):
            return statistics.median(measured)
        return measured

    return value(name) / value(BASELINE)


def make_table(shape: str, result: dict) -> Table:
    table = Table(title=f'{shape}, forward and backward', title_justify='left')
    for column in ('objective', 'ms', 'spread ms', 'MiB', 'time', 'memory'):
        table.add_column(
            column, justify='left' if column == 'objective' else 'right'
        )
    for name, figures in result.items():
        seconds = figures['seconds']
        table.add_row(
            name,
            f'{1e3 * statistics.median(seconds):.0f}',
            f'{1e3 * min(seconds):.0f}-{1e3 * max(seconds):.0f}',
            f'{figures["bytes"] / 2**20:.0f}',
            f'{ratio(result, "seconds", name):.2f}',
            f'{ratio(result, "bytes", name):.2f}',
        )
    return table


def plot(results: dict, path: Path) -> None:
    import matplotlib

    matplotlib.use('Agg')
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        1,
        len(results),
        figsize=(4.2 * len(results), 3.2),
        layout='constrained',
    )
    for axis, (shape, result) in zip(
        [axes] if len(results) == 1 else axes, results.items(), strict=True
    ):
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
    plt.close(figure)
