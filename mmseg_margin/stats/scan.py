"""Statistics of a data set: earlier ones, or a scan on all ranks."""

import hashlib
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from mmengine import dist
from mmengine.logging import print_log
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress
from torch.utils.data import Subset

from mmseg_margin.config_tools import evenly_spaced
from mmseg_margin.errors import DataSetError, SettingError
from mmseg_margin.version import __version__

from .cache import StatsCache, can_be_kept
from .class_stats import JSON_FORMAT, ClassStats, Provenance
from .label_files import (
    LOADING_ERRORS,
    NUM_VALUES,
    Annotation,
    PipelineLoader,
    Problem,
    check_image,
    explain,
    fastest_loader,
)

MAX_THREADS = 16
FILES_PER_TASK = 16
FILES_SHOWN = 10
VALUES_SHOWN = 5
NAMES_COMPARED = 1000


class FileStates(NamedTuple):
    """The state of some label files.

    ``digest`` sums the hashes of everything that determines the counts: the
    mapping, and path, size and times of label and image.
    """

    digest: int = 0
    are_certain: bool = True  # whether sizes and times reveal every change
    newest: tuple[int, str] = (0, '')  # latest change in ns, and its path

    def __add__(self, other: Any) -> 'FileStates':
        """The state of the files of two shards."""
        return FileStates(
            self.digest + other.digest,
            self.are_certain and other.are_certain,
            max(self.newest, other.newest),
        )


def state_of(annotation: Annotation) -> FileStates:
    """Size and times of label and image, without opening them."""
    label, image = annotation.label_file, annotation.image_file
    name = '' if label is not None else annotation.label_path
    states: list[tuple] = []
    newest = (0, '')
    for path in map(os.path.abspath, filter(None, (label, image))):
        try:
            stat = os.stat(path)
        except OSError:
            states.append((path,))
            continue
        # Programs can reset the modification time, not the inode's time.
        times = stat.st_mtime_ns, stat.st_ctime_ns
        states.append((path, stat.st_size, *times))
        newest = max(newest, (max(times), path))
    place = annotation.position, annotation.mapping, name
    digest = int(fingerprint(*place, *states), 16)
    return FileStates(digest, label is not None, newest)


def fingerprint(*parts: object) -> str:
    """A hash of anything that JSON can represent."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True)
class Annotations:
    """Annotations that are created on iteration; slicing is cheap.

    A sample's info takes about a kilobyte, its row of numbers 24 bytes.

    Args:
        leaves: The data sets inside all wrappers, with their loaders.
        rows: Position, leaf and index in the leaf of each sample, (n, 3).
    """

    leaves: list[tuple[Any, PipelineLoader]]
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: slice | list[int]) -> 'Annotations':
        return Annotations(self.leaves, self.rows[part])

    def __iter__(self) -> Iterator[Annotation]:
        for position, leaf, index in map(np.ndarray.tolist, self.rows):
            dataset, loader = self.leaves[leaf]
            yield loader.annotation(position, dataset.get_data_info(index))

    def mappings(self) -> set[str]:
        """From stored to delivered values, in words, of every leaf."""
        firsts = np.unique(self.rows[:, 1], return_index=True)[1]
        return {annotation.mapping for annotation in self[firsts.tolist()]}

    def states(self) -> FileStates:
        """The sum of the states of all files."""
        return sum(map(state_of, self), start=FileStates())


def list_annotations(dataset: Any) -> Annotations:
    """Every annotation once: repetition has no effect, concatenation adds."""
    leaves: list[tuple[Any, PipelineLoader]] = []
    pairs = _leaves_and_indices(dataset, leaves)
    rows = np.insert(pairs, 0, np.arange(len(pairs)), axis=1)
    return Annotations(leaves, rows)


def _leaves_and_indices(dataset: Any, leaves: list) -> NDArray[np.int64]:
    """Leaf and index of each sample, (n, 2); appends to ``leaves``."""
    # Data sets may have attributes called ``dataset``; no wrapper of mmengine
    # or mmseg has a pipeline of the kind that loads samples.
    pipeline: Any = getattr(dataset, 'pipeline', None)
    if hasattr(dataset, 'get_data_info') and hasattr(pipeline, 'transforms'):
        leaves.append((dataset, fastest_loader(pipeline.transforms)))
        indices = np.arange(len(dataset))
        leaf = np.full_like(indices, len(leaves) - 1)
        return np.stack([leaf, indices], axis=1)
    if hasattr(dataset, 'datasets'):  # ConcatDataset
        return np.concatenate(
            [_leaves_and_indices(part, leaves) for part in dataset.datasets]
        )
    if isinstance(dataset, Subset):
        inner = _leaves_and_indices(dataset.dataset, leaves)
        indices = np.asarray(dataset.indices, dtype=np.int64)
        return inner[indices % max(len(inner), 1)]
    if hasattr(dataset, 'dataset'):  # RepeatDataset, MultiImageMixDataset, ..
        return _leaves_and_indices(dataset.dataset, leaves)
    raise DataSetError(
        f'{type(dataset).__name__} has no get_data_info() with a pipeline, so '
        'its annotation files cannot be found: derive it from '
        'BaseSegDataset, or give class_counts to the loss.'
    )


def has_labels(dataset: Any) -> bool:
    """Whether the data set is one whose pipeline loads labels."""
    try:
        return any(x.load() for x in list_annotations(dataset)[:1])
    except (DataSetError, LookupError):  # no path, or nothing that loads it
        return False
    except LOADING_ERRORS:  # a bad label is still a label
        return True


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
class ProblemFiles:
    """Files with one problem: number, first lines, and values by files."""

    count: int = 0
    first: list[tuple[int, str]] = field(default_factory=list)
    values: Counter[int] = field(default_factory=Counter)


class Problems(dict[Problem, ProblemFiles]):
    """The files of a data set by what is wrong with them."""

    def note(
        self, place: int, what: Problem, text: str, values: Iterable[int] = ()
    ) -> None:
        """Note one file; ``text`` names it and says what is wrong."""
        self.add({what: ProblemFiles(1, [(place, text)], Counter(values))})

    def add(self, others: dict[Problem, ProblemFiles]) -> None:
        """Add the problems of another part of the scan."""
        for what, other in others.items():
            files = self.setdefault(what, ProblemFiles())
            files.count += other.count
            # Sorted by position, so that any number of ranks shows the same.
            files.first = sorted(files.first + other.first)[:FILES_SHOWN]
            files.values.update(other.values)


@dataclass
class ScanResult:
    """What the scan of some label files found.

    ``sums`` has one column for each of the 256 values. The rows are pixels,
    images, and labelled pixels of those images, by delivered value, that is
    after the loading transform; and pixels by the value in the file.
    """

    sums: NDArray[np.int64] = field(
        default_factory=lambda: np.zeros((4, NUM_VALUES), np.int64)
    )
    problems: Problems = field(default_factory=Problems)
    digest: int = 0  # of the states of the files after they were read

    def add(self, other: 'ScanResult') -> None:
        """Add the result of other files."""
        self.sums += other.sums
        self.problems.add(other.problems)
        self.digest += other.digest


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
    answer: list[Any] = [None, started]
    if is_main:
        answer[0] = _find_earlier(key, known, cache)
    dist.broadcast_object_list(answer)
    earlier, started = answer
    if earlier is not None and classes in ([], earlier.classes):
        return Collected(earlier, Problems(), annotations)
    labels = LabelRange(len(classes) or None, ignore_index)
    total = ScanResult()
    for part in _on_all_ranks(
        lambda shard: scan(shard, labels, num_threads, is_main), annotations
    ):
        total.add(part)
    sums, problems = total.sums, total.problems
    if np.flatnonzero(sums[3]).tolist() != [0, 255]:
        problems.pop(Problem.BINARY_MASK, None)
    is_changed = total.digest != states.digest
    is_kept = can_be_kept(is_changed, started, *states.newest) and not problems
    provenance = Provenance(
        dataset=source,
        files=len(annotations),
        mapping='; '.join(sorted(annotations.mappings())),
        ignore_index=ignore_index,
        # Without a fingerprint the next run scans and reports again.
        fingerprint=key if is_kept else '',
        version=__version__,
    )
    of_classes = sums[:3] * labels.is_class
    largest = int(np.flatnonzero(of_classes[0]).max(initial=0))
    classes = classes or _numbered(largest + 1)
    counts, images, pixels = of_classes[:, : len(classes)].tolist()
    ignored = int(sums[0, labels.is_ignored].sum())
    stats = ClassStats(classes, counts, images, pixels, ignored, provenance)
    if cache is not None and is_kept and states.are_certain and is_main:
        cache.store(stats)
    return Collected(stats, problems, annotations)


def _find_earlier(
    key: str, known: ClassStats | None, cache: StatsCache | None
) -> ClassStats | None:
    """Statistics of the same files, settings and classes, if there are any."""
    if known is not None:
        if known.provenance.fingerprint == key:
            return known
        print_log(
            'The data set differs from that of the checkpoint, or had '
            'problems: its labels are counted again.',
            logger='current',
        )
    return cache.load(key) if cache is not None else None


def _numbered(num_classes: int) -> list[str]:
    return [f'class {index}' for index in range(num_classes)]


def _on_all_ranks(
    task: Callable[[Annotations], Any], annotations: Annotations
) -> list[Any]:
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
    parts = _on_all_ranks(lambda shard: (shard.states(), names), annotations)
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
    image = annotation.image_file
    problem = image and check_image(image, size)
    if problem:
        note(*problem)
    # After the label was read, so that a change before that is detected.
    result.digest += state_of(annotation).digest
