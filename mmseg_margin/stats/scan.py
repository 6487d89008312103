"""The scan: from label files to :class:`LabelSums` and :class:`Problems`."""

import functools
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed

import numpy as np
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress

from .annotations import Annotation, Annotations
from .file_checks import LOADING_ERRORS, check_image, explain
from .label_sums import LabelRange, LabelSums
from .problems import Kind, Problems

MAX_THREADS = 16
FILES_PER_TASK = 4
FILES_PER_BLOCK = 1 << 14  # so that the queue of tasks stays short


def scan(
    annotations: Annotations,
    labels: LabelRange,
    num_threads: int | None = None,
    show_progress: bool = False,
) -> tuple[LabelSums, Problems]:
    """Read every label once, in threads; Ctrl-C stops it at once."""
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
    note = functools.partial(problems.note, annotation.position)
    size = None
    try:
        label = annotation.loader.load(annotation.info)
    except LOADING_ERRORS as error:
        note(*explain(error, path))
    else:
        stored, size = label.stored, label.stored.size
        sums.add_label(label.delivered, stored.histogram, labels)
        is_label = labels.is_class | labels.is_ignored
        unknown = np.flatnonzero((label.delivered > 0) & ~is_label).tolist()
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
