"""The scan: label files in threads, to sums that one all-reduce adds up."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress

from mmseg_margin.errors import SettingError

from .annotations import Annotation, Annotations
from .histogram import NUM_VALUES, Histogram
from .problems import (
    LOADING_ERRORS,
    Kind,
    Problems,
    check_image,
    explain,
)

MAX_THREADS = 16
FILES_PER_TASK = 4
FILES_PER_BLOCK = 1 << 14  # so that the queue of tasks stays short


@dataclass(frozen=True)
class LabelRange:
    """Which values are labels; ``num_classes=None`` if that is not known."""

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


@dataclass(frozen=True)
class LabelSums:
    """Sums over label files, one column for each of the 256 values.

    The rows are pixels, images, and labelled pixels of those images, by
    delivered value, that is after the loading transform; and pixels by the
    value in the file.
    """

    rows: NDArray[np.int64] = field(
        default_factory=lambda: np.zeros((4, NUM_VALUES), dtype=np.int64)
    )

    def add_label(
        self, delivered: Histogram, stored: Histogram, labels: LabelRange
    ) -> None:
        """Add the histograms of one file."""
        pixels, images, image_pixels, stored_pixels = self.rows
        is_shown = delivered > 0
        pixels += delivered
        images += is_shown
        image_pixels[is_shown] += delivered[labels.is_class].sum()
        stored_pixels += stored

    def add(self, other: 'LabelSums') -> None:
        """Add another part of the scan."""
        self.rows[:] += other.rows

    @property
    def stored_values(self) -> list[int]:
        """The values that occur in the files."""
        return np.flatnonzero(self.rows[3]).tolist()


def scan(
    annotations: Annotations,
    labels: LabelRange,
    num_threads: int | None = None,
    show_progress: bool = False,
) -> tuple[LabelSums, Problems]:
    """Read every label once, in threads; Ctrl-C stops it at once."""
    if num_threads is not None and num_threads < 1:
        raise SettingError(f'num_threads={num_threads} must be 1 or more.')
    sums, problems = LabelSums(), Problems()
    stop = threading.Event()
    # The first one alone, since file backends connect on their first use.
    blocks = [annotations[:1]]
    for start in range(1, len(annotations), FILES_PER_BLOCK):
        blocks.append(annotations[start : start + FILES_PER_BLOCK])
    pool = ThreadPoolExecutor(num_threads or default_threads())
    with _progress_bar(show_progress) as progress:
        bar = progress.add_task('Reading labels', total=len(annotations))
        try:
            for block in blocks:
                sizes = {
                    pool.submit(_scan_part, part, labels, stop): len(part)
                    for part in _split(block)
                }
                for future in as_completed(sizes):
                    # A finished part is dropped, so that few are in memory.
                    size = sizes.pop(future)
                    part_sums, part_problems = future.result()
                    sums.add(part_sums)
                    problems.add(part_problems)
                    progress.advance(bar, size)
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
    return sums, problems


def available_cores() -> int:
    """The cores that this process may use, not those of the machine."""
    if hasattr(os, 'sched_getaffinity'):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_threads() -> int:
    """The cores of this process, shared with the other ranks of the node."""
    ranks = int(os.environ.get('LOCAL_WORLD_SIZE', 1))
    return max(1, min(MAX_THREADS, available_cores() // ranks))


def _split(annotations: Annotations) -> Iterator[Annotations]:
    for start in range(0, len(annotations), FILES_PER_TASK):
        yield annotations[start : start + FILES_PER_TASK]


def _scan_part(
    annotations: Annotations, labels: LabelRange, stop: threading.Event
) -> tuple[LabelSums, Problems]:
    sums, problems = LabelSums(), Problems()
    for annotation in annotations:
        if stop.is_set():
            break
        _scan_label(annotation, labels, sums, problems)
    return sums, problems


def _scan_label(
    annotation: Annotation,
    labels: LabelRange,
    sums: LabelSums,
    problems: Problems,
) -> None:
    path = annotation.label_path
    note = partial(problems.note, annotation.position)
    size = None
    try:
        delivered, stored = annotation.loader.load(annotation.info)
    except LOADING_ERRORS as error:
        note(*explain(error, path))
    else:
        size = stored.size
        sums.add_label(delivered, stored.histogram, labels)
        is_label = labels.is_class | labels.is_ignored
        unknown = np.flatnonzero((delivered > 0) & ~is_label).tolist()
        values = [*unknown, *stored.outside]
        if values:
            shown = ', '.join(str(value) for value in values[:5])
            more = ', ...' if len(values) > 5 else ''
            note(Kind.VALUE, f'{path}: {shown}{more}', values)
        if not stored.histogram[1:-1].any():
            note(Kind.BINARY_MASK, path)
        if stored.wrapped:
            note(Kind.WRAPPED, path)
        if stored.lossy:
            note(Kind.LOSSY, path)
        if size and min(size) == 1:
            note(Kind.THIN, f'{path}: {size[0]}x{size[1]}')
    image = annotation.loader.image_file(annotation.info)
    problem = image and check_image(image, size)
    if problem:
        note(*problem)


def _progress_bar(visible: bool) -> Progress:
    return Progress(
        *Progress.get_default_columns(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        disable=not visible,
    )
