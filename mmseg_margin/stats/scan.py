"""The scan: reads label files in threads and on all ranks."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import torch
from mmengine import dist
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress

from mmseg_margin.errors import DataSetError, SettingError

from .annotations import Annotation, Annotations, FileStates
from .label_files import NUM_VALUES
from .problems import LOADING_ERRORS, Problem, Problems, check_image, explain

MAX_THREADS = 16
FILES_PER_TASK = 16
VALUES_SHOWN = 5

# One column for each of the 256 values. The rows are pixels, images, and
# labelled pixels of those images, by delivered value, that is after the
# loading transform; and pixels by the value in the file. Shape (4, 256).
LabelSums = NDArray[np.int64]


@dataclass(frozen=True)
class LabelRange:
    """Which values are labels; ``num_classes=None`` if it is unknown."""

    num_classes: int | None
    ignore_index: int | None = 255

    @cached_property
    def is_class(self) -> NDArray[np.bool_]:
        """Which of the 256 values are classes, shape (256,)."""
        values = np.arange(NUM_VALUES)
        return (values < (self.num_classes or NUM_VALUES)) & ~self.is_ignored

    @cached_property
    def is_ignored(self) -> NDArray[np.bool_]:
        """Which of the 256 values is the ignore index, shape (256,)."""
        return np.arange(NUM_VALUES) == self.ignore_index


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


def available_cores() -> int:
    """The cores that this process may use, not those of the machine."""
    if hasattr(os, 'sched_getaffinity'):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_threads() -> int:
    """The cores of this process, divided by the ranks of the node."""
    ranks = int(os.environ.get('LOCAL_WORLD_SIZE', 1))
    return max(1, min(MAX_THREADS, available_cores() // ranks))


def scan_on_all_ranks(
    annotations: Annotations, labels: LabelRange, num_threads: int | None
) -> ScanResult:
    """Each rank reads its shard; all ranks return the same result."""
    rank, world_size = dist.get_dist_info()
    shard, found = annotations[rank::world_size], None
    try:
        result = scan(shard, labels, num_threads, show_progress=rank == 0)
        found = result.problems, result.states
    finally:  # even if this rank fails, so that no other waits for it
        parts = dist.all_gather_object(found)
    failed = [i for i, part in enumerate(parts) if part is None]
    if failed:
        raise DataSetError(
            f'Reading the labels failed on rank {failed}: see the error there.'
        )
    dist.all_reduce(torch.from_numpy(result.sums))
    total = ScanResult(result.sums)
    for problems, states in parts:
        total.problems.add(problems)
        total.states += states
    if np.flatnonzero(total.sums[3]).tolist() != [0, 255]:
        total.problems.pop(Problem.BINARY_MASK, None)
    return total


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
        delivered, stored = annotation.load()
    except LOADING_ERRORS as error:
        note(*explain(error, path))
    else:
        size = stored.size
        is_shown = delivered > 0
        sums[0] += delivered
        sums[1] += is_shown
        sums[2, is_shown] += delivered[labels.is_class].sum()
        sums[3] += stored.histogram
        is_unknown = is_shown & ~(labels.is_class | labels.is_ignored)
        values = [*np.flatnonzero(is_unknown).tolist(), *stored.outside]
        if values:
            shown = ', '.join(map(str, values[:VALUES_SHOWN]))
            more = ', ...' if len(values) > VALUES_SHOWN else ''
            note(Problem.VALUE, f'{path}: {shown}{more}', values)
        if not stored.histogram[1:-1].any():
            note(Problem.BINARY_MASK, path)
        if stored.wrapped:
            note(Problem.WRAPPED, path)
        if stored.lossy:
            note(Problem.LOSSY, path)
        if size and min(size) == 1:
            note(Problem.THIN, f'{path}: {size[0]}x{size[1]}')
    image = annotation.source.image_file
    problem = image and check_image(image, size)
    if problem:
        note(*problem)
    # After the label was read, so that a change before that is detected.
    result.states += annotation.state()
