"""The annotation scan beside decoding alone and the usual pixel loop."""

import argparse
import io
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mmcv
import numpy as np
from mmengine.registry import init_default_scope
from mmseg.datasets import BaseSegDataset
from PIL import Image

from mmseg_margin.stats import StatsCache, collect_stats
from mmseg_margin.stats.scan import (
    LabelRange,
    default_threads,
    list_annotations,
    scan,
)

from .measuring import print_table
from .scan_labels import (
    NUM_CLASSES,
    open_labels,
    wait_until_cached,
    write_labels,
)

SIZE = (2048, 1024)
SMALL = (64, 32)
LABELS_ONLY = ({'type': 'LoadAnnotations'},)
WITH_IMAGES = ({'type': 'LoadImageFromFile'}, *LABELS_ONLY)
# One number per repetition.
Rows = dict[str, np.ndarray]


def run(args: argparse.Namespace) -> None:
    """Measure, and print tables."""
    init_default_scope('mmseg')
    if args.folder:
        measure_folder(args.folder, args.repeats)
        return
    threads = args.threads or default_threads()
    with tempfile.TemporaryDirectory() as folder:
        for kind in ('grey', 'palette'):
            root = Path(folder) / kind
            write_labels(root, args.files, SIZE, kind == 'palette')
            print_results(kind, *measure(root, args.repeats, threads))
        root = Path(folder) / 'many'
        write_labels(root, args.cached_files, SMALL, palette=False)
        first, second = measure_cache(root, Path(folder) / 'cache')
    print(
        f'{args.cached_files} files: first run {first:.2f} s, '
        f'second run, from the cache, {second:.2f} s'
    )


def measure(root: Path, repeats: int, threads: int) -> tuple[Rows, Rows]:
    """Milliseconds per file, interleaved, and ratios per repetition."""
    samples = list_annotations(open_labels(root, LABELS_ONLY))
    with_images = list_annotations(open_labels(root, WITH_IMAGES))
    paths = [sample.label_path for sample in samples]
    labels = LabelRange(NUM_CLASSES)
    threaded = f'{threads} threads'
    tasks: dict[str, Callable[[], Any]] = {
        'decode': lambda: for_each(decode, paths),
        'decode to array': lambda: for_each(decode_to_array, paths),
        'usual loop': lambda: for_each(usual_count, paths),
        'scan': lambda: scan(samples, labels, num_threads=1),
        'scan with images': lambda: scan(with_images, labels, num_threads=1),
        f'decode, {threaded}': lambda: for_each(decode, paths, threads),
        f'scan, {threaded}': lambda: scan(samples, labels, threads),
    }
    rounds = np.array(
        [
            [clocks_of(task) for task in tasks.values()]
            for _ in range(repeats + 1)
        ]
    )
    # The first round warms up.
    times = 1e3 * rounds[1:].transpose(2, 1, 0) / len(paths)
    wall, cpu = (dict(zip(tasks, x, strict=True)) for x in times)
    ratios = {
        f'{name} / {other}': wall[name] / wall[other]
        for name, other in (
            ('scan', 'decode'),
            ('scan', 'decode to array'),
            ('scan with images', 'scan'),
            ('scan', 'usual loop'),
        )
    }
    for other in ('decode', 'usual loop'):
        ratios[f'scan / {other}, CPU time'] = cpu['scan'] / cpu[other]
    speed_up = f'speed-up of {threaded}'
    ratios[speed_up] = wall['scan'] / wall[f'scan, {threaded}']
    ratios[f'{speed_up}, decode alone'] = (
        wall['decode'] / wall[f'decode, {threaded}']
    )
    return wall | {'scan, CPU time': cpu['scan']}, ratios


def clocks_of(task: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of wall time, and of CPU time of all cores."""
    wall, cpu = time.perf_counter(), time.process_time()
    task()
    return time.perf_counter() - wall, time.process_time() - cpu


def measure_folder(folder: Path, repeats: int) -> None:
    """CPU time of one thread for the user's own files."""
    dataset = BaseSegDataset(
        data_root=str(folder),
        img_suffix='.png',
        data_prefix={'img_path': '', 'seg_map_path': ''},
        pipeline=list(WITH_IMAGES),
    )
    samples = list_annotations(dataset)
    milliseconds = []
    for _ in range(repeats):
        start = time.process_time()
        sums = scan(samples, LabelRange(None), num_threads=1).sums
        seconds = time.process_time() - start
        milliseconds.append(1e3 * seconds / len(samples))
    median = statistics.median(milliseconds)
    megapixels = sums[3].sum() / 1e6 / len(samples)
    print(
        f'{len(samples)} files, CPU time: {median:.2f} ms a file '
        f'({min(milliseconds):.2f}-{max(milliseconds):.2f}), '
        f'{median / megapixels:.2f} ms a megapixel'
    )


def for_each(
    task: Callable[[str], Any], paths: list[str], threads: int = 1
) -> None:
    """Run a task on all files; results are dropped, to save memory."""
    if threads == 1:
        deque(map(task, paths), maxlen=0)
        return
    with ThreadPoolExecutor(threads) as pool:
        deque(pool.map(task, paths), maxlen=0)


def decode(path: str) -> Image.Image:
    """Pillow's decoding alone."""
    with Image.open(io.BytesIO(Path(path).read_bytes())) as image:
        image.load()
        return image


def decode_to_array(path: str) -> np.ndarray:
    """Decoding to an array."""
    return np.asarray(decode(path))


def usual_count(path: str) -> np.ndarray:
    """Load, apply ``reduce_zero_label`` to the pixels, and count them."""
    label = mmcv.imread(path, flag='unchanged', backend='pillow')
    label = label.squeeze().astype(np.uint8)
    label[label == 0] = 255
    label = label - 1
    label[label == 254] = 255
    return np.bincount(label.ravel(), minlength=256)


def measure_cache(root: Path, folder: Path) -> list[float]:
    """Seconds of a first and a second run."""
    wait_until_cached()
    seconds = []
    for _ in range(2):
        dataset = open_labels(root, WITH_IMAGES)
        start = time.perf_counter()
        collect_stats(dataset, cache=StatsCache(folder))
        seconds.append(time.perf_counter() - start)
    return seconds


def print_results(kind: str, milliseconds: Rows, ratios: Rows) -> None:
    """Times and ratios of one kind of labels."""
    width, height = SIZE
    rows = []
    for values, unit in ((milliseconds, ' (ms per file)'), (ratios, '')):
        for name, x in values.items():
            figures = np.median(x), x.min(), x.max()
            rows.append((name + unit, *(f'{x:.3f}' for x in figures)))
    title = f'{kind} PNGs of {width}x{height}'
    print_table(title, ('', 'median', 'min', 'max'), rows)
