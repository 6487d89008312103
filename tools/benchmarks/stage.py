"""Time and memory of the loss stage of a head beside mmseg's."""

import argparse
import gc
import os
import time
import warnings
from collections.abc import Callable
from statistics import median

import torch
from mmengine.registry import init_default_scope
from mmseg.models.losses import accuracy
from mmseg.models.utils import resize
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from mmseg_margin.errors import SettingError, did_you_mean
from mmseg_margin.losses.fused_stage import fused_loss
from mmseg_margin.losses.objectives import OBJECTIVES, build_loss

from .tables import parse_shape, print_table

# Without it torch's profiler prints two lines at each use.
os.environ.setdefault('KINETO_LOG_LEVEL', '99')

Step = Callable[[], object]
FUSED = ', fused'
DEFAULT = ['ce', 'ce, fused', 'jaccard, fused', 'margin, fused']
DEVICE = 'cuda' if torch.cuda.is_available() else 'cpu'


def run(args: argparse.Namespace) -> None:
    """Measure mmseg's stage with cross-entropy and others on each shape."""
    warnings.simplefilter('ignore')
    torch.set_num_threads(args.threads)
    init_default_scope('mmseg')
    names = dict.fromkeys(['ce', *(args.losses or DEFAULT)])
    for shape in args.shapes:
        batch = random_batch(shape)
        steps = {name: make_step(name, *batch) for name in names}
        seconds = measure(steps, args.repeats)
        memory = {name: peak_bytes(step) for name, step in steps.items()}
        print_table(
            f'{shape}, loss stage, {DEVICE}, torch {torch.__version__}',
            ('', 'ms', 'spread ms', 'MiB', 'time', 'memory'),
            [
                (
                    name,
                    f'{1e3 * median(taken):.3g}',
                    f'{1e3 * min(taken):.3g}-{1e3 * max(taken):.3g}',
                    f'{memory[name] / 2**20:.3g}',
                    f'{median(taken) / median(seconds["ce"]):.2f}',
                    f'{memory[name] / memory["ce"]:.2f}',
                )
                for name, taken in seconds.items()
            ],
        )
        torch.compiler.reset()


def random_batch(shape: str) -> tuple[Tensor, Tensor]:
    """Scores (N, K, H / S, W / S) and labels (N, H, W)."""
    N, K, H, W, S = parse_shape(shape)
    torch.manual_seed(0)
    scores = 3 * torch.randn(N, K, H // S, W // S, device=DEVICE)
    labels = torch.randint(0, K, (N, H, W), device=DEVICE)
    labels[torch.rand(N, H, W, device=DEVICE) < 0.05] = 255
    return scores, labels


def make_step(name: str, low: Tensor, labels: Tensor) -> Step:
    """mmseg's stage with an objective, or the fused one."""
    loss = build(name.removesuffix(FUSED), low.shape[1])

    def stage() -> None:
        leaf = low.detach().requires_grad_()
        scores = resize(leaf, size=labels.shape[1:], mode='bilinear')
        value = loss(scores, labels, ignore_index=255)
        accuracy(scores, labels, ignore_index=255)
        value.sum().backward()

    def fused_stage() -> None:
        leaf = low.detach().requires_grad_()
        value, _ = fused_loss(loss, leaf, labels)
        value.backward()

    return fused_stage if name.endswith(FUSED) else stage


def build(name: str, num_classes: int) -> torch.nn.Module:
    """A loss by the name of its objective and, after a comma, its backend.

    A name alone stands for the backend that a training would choose.
    """
    name, _, backend = name.partition(', ')
    if name not in OBJECTIVES:
        raise SettingError(
            f'{name!r} is no objective.{did_you_mean(name, OBJECTIVES)}'
        )
    config = OBJECTIVES[name] | ({'backend': backend} if backend else {})
    if name == 'jaccard':
        config['ce_ramp'] = 0  # the whole cost, as at the end of a training
    loss = build_loss(config)
    if hasattr(loss, 'set_class_counts'):
        loss.set_class_counts([10**9 // (k + 1) for k in range(num_classes)])
    return loss.to(DEVICE)


def measure(steps: dict[str, Step], repeats: int) -> dict[str, list[float]]:
    """Seconds of all repetitions of each step, interleaved.

    With one CPU thread the CPU time of the thread is measured, because other
    programs do not influence it.
    """
    one_thread = DEVICE == 'cpu' and torch.get_num_threads() == 1
    clock = time.thread_time if one_thread else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(2 + repeats):
        for name, step in steps.items():
            start = clock()
            step()
            if DEVICE == 'cuda':
                torch.cuda.synchronize()
            seconds[name].append(clock() - start)
    return {name: taken[2:] for name, taken in seconds.items()}


def peak_bytes(step: Step) -> int:
    """Peak memory in addition to the memory allocated before the step."""
    gc.collect()
    if DEVICE == 'cuda':
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
