"""The scan: label files to a :class:`Tally` and :class:`Findings`."""

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from .file_errors import LOADING_ERRORS, check_image, explain
from .findings import Findings, Kind
from .samples import Sample
from .tally import LabelRange, Tally

MAX_THREADS = 16
FILES_PER_TASK = 4
FILES_PER_BLOCK = 1 << 14  # so that the queue of tasks stays short


def scan(
    samples: Sequence[Sample],
    label_range: LabelRange,
    num_threads: int | None = None,
    show_progress: bool = False,
) -> tuple[Tally, Findings]:
    """Read every sample's label once, in threads; Ctrl-C stops it at once."""
    tally, findings = Tally(), Findings()
    stop = threading.Event()
    # The first one alone, since file backends connect on their first use.
    blocks = [samples[:1]]
    for start in range(1, len(samples), FILES_PER_BLOCK):
        blocks.append(samples[start : start + FILES_PER_BLOCK])
    pool = ThreadPoolExecutor(num_threads or default_threads())
    with _progress_bar(show_progress) as progress:
        bar = progress.add_task('Reading labels', total=len(samples))

        def collect(part: tuple[Tally, Findings], num_files: int) -> None:
            tally.add(part[0])
            findings.add(part[1])
            progress.advance(bar, num_files)

        try:
            for block in blocks:
                sizes = {
                    pool.submit(_scan_part, task, label_range, stop): len(task)
                    for task in _split(block)
                }
                for future in as_completed(sizes):
                    collect(future.result(), sizes.pop(future))
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
    return tally, findings


def available_cores() -> int:
    """The cores that this process may use, not those of the machine."""
    if hasattr(os, 'sched_getaffinity'):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_threads() -> int:
    """The cores of this process, shared with the other ranks of the node."""
    ranks = int(os.environ.get('LOCAL_WORLD_SIZE', 1))
    return max(1, min(MAX_THREADS, available_cores() // ranks))


def _split(samples: Sequence[Sample]) -> Iterator[Sequence[Sample]]:
    for start in range(0, len(samples), FILES_PER_TASK):
        yield samples[start : start + FILES_PER_TASK]


def _scan_part(
    samples: Sequence[Sample], label_range: LabelRange, stop: threading.Event
) -> tuple[Tally, Findings]:
    tally, findings = Tally(), Findings()
    for sample in samples:
        if stop.is_set():
            break
        _scan_label(sample, label_range, tally, findings)
    return tally, findings


def _scan_label(
    sample: Sample, allowed: LabelRange, tally: Tally, findings: Findings
) -> None:
    path, position = sample.label_path, sample.position
    size = None
    try:
        label = sample.loader.load(sample.info)
    except LOADING_ERRORS as error:
        kind, text = explain(error, path)
        findings.note(kind, position, text)
    else:
        size = label.size
        tally.add_label(label.delivered, label.stored, allowed.is_class)
        known = allowed.is_class | allowed.is_ignored
        unknown = np.flatnonzero((label.delivered > 0) & ~known).tolist()
        values = [*unknown, *label.beyond_uint8]
        if values:
            shown = ', '.join(str(value) for value in values[:5])
            more = ', ...' if len(values) > 5 else ''
            text = f'{path}: {shown}{more}'
            findings.note(Kind.VALUE, position, text, values)
        if label.wrapped:
            findings.note(Kind.WRAPPED, position, path)
    image = sample.loader.image_file(sample.info)
    problem = image and check_image(image, size)
    if problem:
        findings.note(problem[0], position, problem[1])


class _RateColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f'{task.finished_speed or task.speed or 0:.0f} files/s')


def _progress_bar(visible: bool) -> Progress:
    return Progress(
        TextColumn('{task.description}'),
        BarColumn(),
        MofNCompleteColumn(),
        _RateColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not visible,
    )
