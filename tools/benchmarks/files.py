"""Time and memory per label file, apart from decoding."""

import argparse
import os
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mmengine.registry import init_default_scope

from mmseg_margin.stats import StatsCache, collect_stats
from mmseg_margin.stats.scan import LabelRange, list_annotations, scan

from .measuring import print_table
from .scan_labels import (
    NUM_CLASSES,
    open_labels,
    wait_until_cached,
    write_labels,
)

SMALL = (64, 32)
FILES_PER_FOLDER = 1000
SUMS = 4 * 256 * 8  # four int64 rows with one entry per label value
PIPELINE = ({'type': 'LoadImageFromFile'}, {'type': 'LoadAnnotations'})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the sub-command."""
    parser.add_argument('--files', type=int, default=20_000)


def run(args: argparse.Namespace) -> None:
    """Measure, and print a table."""
    init_default_scope('mmseg')
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, 'data')
        write_links(root, args.files)
        results = measure(root, Path(folder, 'cache'))
    print_table(
        f'{args.files} label files of {SMALL[0]}x{SMALL[1]}',
        ('per file', 'microseconds of CPU time', 'bytes kept', 'peak bytes'),
        (
            (name, *(f'{x / args.files:.1f}' for x in figures))
            for name, figures in results.items()
        ),
    )
    print(f'sums of {SUMS} bytes from each rank for any data set')


def write_links(root: Path, num_files: int) -> None:
    """Write a few files, and hard links to them up to ``num_files``."""
    write_labels(root / 'source', 8, SMALL, palette=False)
    for index in range(num_files):
        group, name = divmod(index, FILES_PER_FOLDER)
        for kind in ('img', 'ann'):
            source = root / 'source' / kind / f'{index % 8:05d}.png'
            folder = root / kind / f'{group:05d}'
            folder.mkdir(parents=True, exist_ok=True)
            os.link(source, folder / f'{name:05d}.png')


def measure(root: Path, cache: Path) -> dict[str, tuple[float, int, int]]:
    """CPU microseconds, bytes kept and peak bytes of each task."""
    results: dict[str, tuple[float, int, int]] = {}

    def timed(name: str, task: Callable[[], Any]) -> Any:
        start = time.process_time()
        task()
        microseconds = 1e6 * (time.process_time() - start)
        tracemalloc.start()
        kept = task()
        results[name] = microseconds, *tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return kept

    labels = LabelRange(NUM_CLASSES)
    dataset = timed("mmseg's file list", lambda: open_labels(root, PIPELINE))
    samples = timed('our file list', lambda: list_annotations(dataset))
    timed('size and times of the files', samples.states)
    timed('reading, one thread', lambda: scan(samples, labels, 1))
    wait_until_cached()
    store = StatsCache(cache)
    collect_stats(dataset, cache=store)
    timed('a second run', lambda: collect_stats(dataset, cache=store).stats)
    return results
