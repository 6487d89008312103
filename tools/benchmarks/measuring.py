"""Time and peak memory of several implementations, interleaved."""

import argparse
import gc
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from mmengine.registry import init_default_scope
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from mmseg_margin.errors import SettingError

# Without it torch's profiler prints two lines at each use.
os.environ.setdefault('KINETO_LOG_LEVEL', '99')

Step = Callable[[], object]
Figures = dict[str, dict]


def prepare(args: argparse.Namespace) -> None:
    warnings.simplefilter('ignore')
    torch.set_num_threads(args.threads)
    init_default_scope('mmseg')


def device() -> str:
    """The device to measure on."""
    return 'cuda' if torch.cuda.is_available() else 'cpu'


def parse_shape(shape: str, letters: str = 'NxKxHxW') -> list[int]:
    """The sizes of ``2x19x512x1024``."""
    sizes = shape.split('x')
    if len(sizes) != len(letters.split('x')) or not all(
        size.isdecimal() and int(size) > 0 for size in sizes
    ):
        raise SettingError(f'{shape!r} is not a shape {letters}.')
    return [int(size) for size in sizes]


def measure(steps: dict[str, Step], repeats: int) -> Figures:
    """Seconds of all repetitions and peak extra bytes of each step.

    With one CPU thread the CPU time of the thread is measured, because other
    programs do not influence it.
    """
    one_thread = device() == 'cpu' and torch.get_num_threads() == 1
    clock = time.thread_time if one_thread else time.perf_counter
    for step in steps.values():
        step()
        step()
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            start = clock()
            step()
            if device() == 'cuda':
                torch.cuda.synchronize()
            seconds[name].append(clock() - start)
    return {
        name: dict(seconds=seconds[name], bytes=peak_bytes(step))
        for name, step in steps.items()
    }


def peak_bytes(step: Step) -> int:
    """Peak memory in addition to the memory allocated before the step."""
    gc.collect()
    if device() == 'cuda':
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


def ratio(figures: Figures, key: str, name: str) -> float:
    """The ratio of a step's figure to that of the first step."""
    first = next(iter(figures))
    value, reference = (np.median(figures[x][key]) for x in (name, first))
    return float(value / reference)


def two_digits(value: float) -> str:
    """A whole number, or at least two significant digits of a small one."""
    return f'{value:.0f}' if value >= 10 else f'{value:.2g}'


def print_figures(title: str, figures: Figures) -> None:
    """Print times, memory, and their ratios to those of the first step."""
    where = torch.cuda.get_device_name() if device() == 'cuda' else 'CPU'
    rows = []
    for name, measured in figures.items():
        ms = [1e3 * seconds for seconds in measured['seconds']]
        rows.append(
            (
                name,
                two_digits(statistics.median(ms)),
                f'{two_digits(min(ms))}-{two_digits(max(ms))}',
                two_digits(measured['bytes'] / 2**20),
                f'{ratio(figures, "seconds", name):.2f}',
                f'{ratio(figures, "bytes", name):.2f}',
            )
        )
    print_table(
        f'{title}, {where}, torch {torch.__version__}',
        ('', 'ms', 'spread ms', 'MiB', 'time', 'memory'),
        rows,
    )


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]
) -> None:
    """The first column has the names of the rows."""
    table = Table(title=title, title_justify='left')
    for index, column in enumerate(columns):
        table.add_column(column, justify='right' if index else 'left')
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def write_json(path: Path | None, figures: object) -> None:
    if path:
        path.write_text(json.dumps(figures, indent=1) + '\n', 'utf-8')
