"""The annotation scan against decoding alone and the loop users write."""

import argparse
import io
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mmcv
import numpy as np
from mmengine.registry import init_default_scope
from mmseg.datasets import BaseSegDataset
from PIL import Image
from rich.console import Console
from rich.table import Table

from mmseg_margin.stats import LabelRange, StatsCache, collect_stats
from mmseg_margin.stats.annotations import list_annotations
from mmseg_margin.stats.scan import default_threads, scan

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the sub-command."""
    parser.add_argument('--files', type=int, default=33)
    parser.add_argument('--repeats', type=int, default=7)
    parser.add_argument('--threads', type=int, default=default_threads())
    parser.add_argument('--cached-files', type=int, default=3000)
    parser.add_argument(
        '--folder', type=Path, help='scan these label files (.png) instead'
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure, print tables, and return all figures."""
    init_default_scope('mmseg')
    if args.folder:
        return measure_folder(args.folder, args.repeats)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in ('grey', 'palette'):
            root = Path(folder) / kind
            write_labels(root, args.files, SIZE, kind == 'palette')
            results[kind] = measure(root, args.repeats, args.threads)
            print_table(kind, results[kind])
        root = Path(folder) / 'many'
        write_labels(root, args.cached_files, SMALL, palette=False)
        results['cache'] = measure_cache(root, Path(folder) / 'cache')
    first, second = results['cache'].values()
    print(
        f'{args.cached_files} files: first run {first:.2f} s, '
        f'second run, from the cache, {second:.2f} s'
    )
    return results


def measure(root: Path, repeats: int, threads: int) -> dict[str, Any]:
    """Milliseconds for a file, interleaved so that all share the noise."""
    samples = list_annotations(open_labels(root, LABELS_ONLY))
    with_images = list_annotations(open_labels(root, WITH_IMAGES))
    paths = [sample.label_path for sample in samples]
    labels = LabelRange(NUM_CLASSES)
    tasks: dict[str, Callable[[], Any]] = {
        'decode': lambda: for_each(decode, paths),
        'decode to array': lambda: for_each(decode_to_array, paths),
        'users loop': lambda: for_each(count_as_users_do, paths),
        'scan': lambda: scan(samples, labels, num_threads=1),
        'scan with images': lambda: scan(with_images, labels, num_threads=1),
        f'decode, {threads} threads': lambda: for_each(decode, paths, threads),
        f'scan, {threads} threads': lambda: scan(samples, labels, threads),
    }
    wall: dict[str, list[float]] = {name: [] for name in tasks}
    cpu: dict[str, list[float]] = {name: [] for name in tasks}
    for repeat in range(repeats + 1):
        for name, task in tasks.items():
            start = time.perf_counter(), time.process_time()
            task()
            end = time.perf_counter(), time.process_time()
            if repeat:  # the first round warms up
                wall[name].append(1e3 * (end[0] - start[0]) / len(paths))
                cpu[name].append(1e3 * (end[1] - start[1]) / len(paths))
    ratios = {
        'scan / decode': ratio(wall, 'scan', 'decode'),
        'scan / decode, CPU time': ratio(cpu, 'scan', 'decode'),
        'scan / decode to array': ratio(wall, 'scan', 'decode to array'),
        'scan with images / scan': ratio(wall, 'scan with images', 'scan'),
        'scan / users loop': ratio(wall, 'scan', 'users loop'),
        'scan / users loop, CPU time': ratio(cpu, 'scan', 'users loop'),
        f'speed-up of {threads} threads': ratio(
            wall, 'scan', f'scan, {threads} threads'
        ),
        f'speed-up of {threads} threads, decode alone': ratio(
            wall, 'decode', f'decode, {threads} threads'
        ),
    }
    times = {name: summary(values) for name, values in wall.items()}
    times['scan, CPU time'] = summary(cpu['scan'])
    return {'milliseconds': times, 'ratios': ratios}


def measure_folder(folder: Path, repeats: int) -> dict[str, float]:
    """CPU time of one thread for files of the user's own."""
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
        sums, _ = scan(samples, LabelRange(None), num_threads=1)
        seconds = time.process_time() - start
        milliseconds.append(1e3 * seconds / len(samples))
    found = summary(milliseconds)
    megapixels = sums[3].sum() / 1e6 / len(samples)
    print(
        f'{len(samples)} files, CPU time: {found["median"]:.2f} ms a file '
        f'({found["min"]:.2f}-{found["max"]:.2f}), '
        f'{found["median"] / megapixels:.2f} ms a megapixel'
    )
    return found


def for_each(
    task: Callable[[str], Any], paths: list[str], threads: int = 1
) -> None:
    """Do it to all files and keep nothing, which would cost memory pages."""
    if threads == 1:
        for path in paths:
            task(path)
        return

    def forget(path: str) -> None:
        task(path)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(forget, paths))


def decode(path: str) -> Image.Image:
    """Nothing but Pillow's decoding."""
    with Image.open(io.BytesIO(Path(path).read_bytes())) as image:
        image.load()
        return image


def decode_to_array(path: str) -> np.ndarray:
    """Decoding to where the pixels can be used."""
    return np.asarray(decode(path))


def count_as_users_do(path: str) -> np.ndarray:
    """Load, apply ``reduce_zero_label`` to the pixels, and count them."""
    label = mmcv.imread(path, flag='unchanged', backend='pillow')
    label = label.squeeze().astype(np.uint8)
    label[label == 0] = 255
    label = label - 1
    label[label == 254] = 255
    return np.bincount(label.ravel(), minlength=256)


def measure_cache(root: Path, folder: Path) -> dict[str, float]:
    """Seconds of a first and a second run."""
    wait_until_cached()
    seconds = {}
    for name in ('first', 'second'):
        dataset = open_labels(root, WITH_IMAGES)
        start = time.perf_counter()
        collect_stats(dataset, LabelRange(None), StatsCache(folder))
        seconds[name] = time.perf_counter() - start
    return seconds


def ratio(
    times: dict[str, list[float]], above: str, below: str
) -> dict[str, float]:
    """Median and spread of the ratios within each repetition."""
    pairs = zip(times[above], times[below], strict=True)
    return summary([a / b for a, b in pairs])


def summary(values: list[float]) -> dict[str, float]:
    """Median, least and most."""
    return {
        'median': statistics.median(values),
        'min': min(values),
        'max': max(values),
    }


def print_table(kind: str, result: dict[str, Any]) -> None:
    """Times and ratios of one kind of labels."""
    width, height = SIZE
    table = Table(title=f'{kind} PNGs of {width}x{height}')
    for column in ('', 'median', 'min', 'max'):
        table.add_column(column, justify='right' if column else 'left')
    for section, unit in (('milliseconds', ' (ms per file)'), ('ratios', '')):
        for name, values in result[section].items():
            cells = [f'{value:.3f}' for value in values.values()]
            table.add_row(name + unit, *cells)
        table.add_section()
    Console().print(table)
