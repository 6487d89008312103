"""Statistics of a data set: earlier ones, or a scan on all ranks."""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from mmengine import dist
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress

from mmseg_margin.config_tools import evenly_spaced
from mmseg_margin.errors import DataSetError, SettingError
from mmseg_margin.version import __version__

from .annotations import (
    Annotation,
    Annotations,
    FileStates,
    fingerprint,
    list_annotations,
)
from .cache import StatsCache, find_earlier, is_unchanged
from .class_stats import JSON_FORMAT, ClassStats, Provenance
from .label_files import LOADING_ERRORS, NUM_VALUES
from .problems import Problem, Problems, check_image, explain

MAX_THREADS = 16
FILES_PER_TASK = 16
VALUES_SHOWN = 5
NAMES_COMPARED = 1000

# One column for each of the 256 values. The rows are pixels, images, and
# labelled pixels of those images, by delivered value, that is after the
# loading transform; and pixels by the value in the file. Shape (4, 256).
LabelSums = NDArray[np.int64]
T = TypeVar('T')


class LabelRange:
    """Which of the 256 values are classes and which is ignored, (256,).

    Without ``num_classes``, every value that is not ignored is a class.
    """

    def __init__(
        self, num_classes: int | None, ignore_index: int | None = 255
    ) -> None:
        values = np.arange(NUM_VALUES)
        self.is_ignored = values == ignore_index
        self.is_class = values < (num_classes or NUM_VALUES)
        self.is_class &= ~self.is_ignored


@dataclass
class ScanResult:
    """What the scan of some label files found."""

    sums: LabelSums = field(
        default_factory=lambda: np.zeros((4, NUM_VALUES), np.int64)
    )
    problems: Problems = field(default_factory=Problems)
    states: FileStates = field(default_factory=FileStates)

    def add(self, other: 'ScanResult') -> None:
        """Add the result of other files."""
        self.sums += other.sums
        self.problems.add(other.problems)
        self.states += other.states


class Collected(NamedTuple):
    """The statistics, what a scan found if there was one, and the files."""

    stats: ClassStats
    problems: Problems
    annotations: Annotations


def collect_stats(
    dataset: Any,
    num_classes: int | None = None,
    ignore_index: int | None = None,
    cache: StatsCache | None = None,
    known: ClassStats | None = None,
    num_threads: int | None = None,
) -> Collected:
    """The statistics of a data set, the same on every rank.

    Each rank reads its shard of the files; rank 0 reads the cache and shows
    the progress.

    Args:
        dataset: A built data set, wrapped or not.
        num_classes: Only used if the data set names no classes.
        ignore_index: The label to ignore; the data set's own if None.
        cache: Where to look first, and to store the result.
        known: Earlier statistics, used if the data set has not changed.
        num_threads: Threads of each rank; the cores of the machine if None.
    """
    annotations = list_annotations(dataset)
    leaves = [leaf for leaf, _ in annotations.leaves]
    source = ' + '.join(dict.fromkeys(type(x).__name__ for x in leaves))
    if not annotations:
        raise DataSetError(
            f'{source} has no samples: check data_root, data_prefix, the '
            'suffixes and ann_file.'
        )
    named = getattr(leaves[0], 'metainfo', {}).get('classes') or ()
    classes = [str(name) for name in named]
    classes = classes or _numbered(num_classes or 0)
    if ignore_index is None:
        ignore_index = getattr(leaves[0], 'ignore_index', 255)
    is_main, started = dist.is_main_process(), time.time_ns()
    states = _states_on_all_ranks(annotations)
    key = fingerprint(JSON_FORMAT, classes, ignore_index, states.digest)
    answer: list[Any] = [None]
    if is_main:
        answer = [(find_earlier(key, classes, known, cache), started)]
    dist.broadcast_object_list(answer)
    found, started = answer[0]
    if found is not None:
        return Collected(found, Problems(), annotations)
    labels = LabelRange(len(classes) or None, ignore_index)
    total = ScanResult()
    for part in on_all_ranks(
        lambda shard: scan(shard, labels, num_threads, is_main), annotations
    ):
        total.add(part)
    sums, problems = total.sums, total.problems
    if np.flatnonzero(sums[3]).tolist() != [0, 255]:
        problems.pop(Problem.BINARY_MASK, None)
    # Without a fingerprint the next run scans again and repeats its report.
    is_clean = is_unchanged(states, total.states, started) and not problems
    provenance = Provenance(
        dataset=source,
        files=len(annotations),
        mapping='; '.join(sorted(states.mappings)),
        ignore_index=ignore_index,
        fingerprint=key if is_clean else '',
        version=__version__,
    )
    of_classes = sums[:3] * labels.is_class
    largest = int(np.flatnonzero(of_classes[0]).max(initial=0))
    classes = classes or _numbered(largest + 1)
    counts, images, pixels = of_classes[:, : len(classes)].tolist()
    ignored = int(sums[0, labels.is_ignored].sum())
    stats = ClassStats(classes, counts, images, pixels, ignored, provenance)
    if cache is not None and is_clean and states.are_certain and is_main:
        cache.store(stats)
    return Collected(stats, problems, annotations)


def _numbered(num_classes: int) -> list[str]:
    return [f'class {index}' for index in range(num_classes)]


def on_all_ranks(
    task: Callable[[Annotations], T], annotations: Annotations
) -> list[T]:
    """The results of all ranks, each of which runs the task on its shard."""
    rank, world_size = dist.get_dist_info()
    result = None
    try:
        result = task(annotations[rank::world_size])
    finally:  # even if this rank fails, so that no other waits for it
        results = dist.all_gather_object(result)
    failed = [i for i, found in enumerate(results) if found is None]
    if failed:
        raise DataSetError(
            f'Reading the labels failed on rank {failed}: see the error there.'
        )
    return results


def _states_on_all_ranks(annotations: Annotations) -> FileStates:
    some = annotations[evenly_spaced(len(annotations), NAMES_COMPARED)]
    names = fingerprint(len(annotations), *(x.label_path for x in some))
    parts = on_all_ranks(lambda shard: (shard.states(), names), annotations)
    if len({names for _, names in parts}) > 1:
        raise DataSetError(
            'The ranks do not see the same label files: check that every '
            'node has the same data set at the same place.'
        )
    return sum((states for states, _ in parts), start=FileStates())


def available_cores() -> int:
    """The cores that this process may use, not those of the machine."""
    if hasattr(os, 'sched_getaffinity'):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_threads() -> int:
    """The cores of this process, divided by the ranks of the node."""
    ranks = int(os.environ.get('LOCAL_WORLD_SIZE', 1))
    return max(1, min(MAX_THREADS, available_cores() // ranks))


def scan(
    annotations: Annotations,
    labels: LabelRange,
    num_threads: int | None = None,
    show_progress: bool = False,
) -> ScanResult:
    """Read every label once, in threads; Ctrl-C stops it at once."""
    if num_threads is not None and num_threads < 1:
        raise SettingError(f'num_threads={num_threads} must be 1 or more.')
    stop = threading.Event()

    def scan_part(part: Annotations) -> ScanResult:
        result = ScanResult()
        for annotation in part:
            if stop.is_set():
                break
            _scan_label(annotation, labels, result)
        return result

    starts = range(1, len(annotations), FILES_PER_TASK)
    parts = [annotations[i : i + FILES_PER_TASK] for i in starts]
    with (
        Progress(
            *Progress.get_default_columns(),
            MofNCompleteColumn(),
            console=Console(stderr=True),
            disable=not show_progress,
        ) as progress,
        ThreadPoolExecutor(num_threads or default_threads()) as pool,
    ):
        bar = progress.add_task('Reading labels', total=len(annotations))
        try:
            # The first label alone: file backends connect on first use.
            total = scan_part(annotations[:1])
            progress.advance(bar)
            results = pool.map(scan_part, parts)
            for part, result in zip(parts, results, strict=True):
                total.add(result)
                progress.advance(bar, len(part))
        finally:
            stop.set()
    return total


def _scan_label(
    annotation: Annotation, labels: LabelRange, result: ScanResult
) -> None:
    """Add the histograms of one file, and note what is wrong with it."""
    path, sums = annotation.label_path, result.sums
    note = partial(result.problems.note, annotation.position)
    size = None
    try:
        label = annotation.load()
    except LOADING_ERRORS as error:
        note(*explain(error, path))
    else:
        size = label.size
        is_shown = label.delivered > 0
        sums[0] += label.delivered
        sums[1] += is_shown
        sums[2, is_shown] += label.delivered[labels.is_class].sum()
        sums[3] += label.stored
        is_unknown = is_shown & ~(labels.is_class | labels.is_ignored)
        values = [*np.flatnonzero(is_unknown).tolist(), *label.outside]
        if values:
            shown = ', '.join(map(str, values[:VALUES_SHOWN]))
            more = ', ...' if len(values) > VALUES_SHOWN else ''
            note(Problem.VALUE, f'{path}: {shown}{more}', values)
        if not label.stored[1:-1].any():
            note(Problem.BINARY_MASK, path)
        if label.wrapped:
            note(Problem.WRAPPED, path)
        if label.lossy:
            note(Problem.LOSSY, path)
        if size and min(size) == 1:
            note(Problem.THIN, f'{path}: {size[0]}x{size[1]}')
    image = annotation.source.image_file
    problem = image and check_image(image, size)
    if problem:
        note(*problem)
    # After the label was read, so that a change before that is detected.
    result.states += annotation.state()
