"""Statistics of a data set: from a checkpoint, the cache, or a scan."""

import logging
import time
from typing import Any, NamedTuple

import numpy as np
from mmengine import dist
from mmengine.logging import print_log

from mmseg_margin.errors import DataSetError
from mmseg_margin.terminal import printable
from mmseg_margin.version import __version__

from .annotations import (
    Annotations,
    FileStates,
    file_states,
    fingerprint,
    list_annotations,
)
from .cache import StatsCache
from .class_stats import JSON_FORMAT, ClassStats, Provenance
from .problems import Problems
from .scan import LabelRange, scan_on_all_ranks

# Two changes of a file within the resolution of its time look like one; the
# coarsest file systems have a resolution of two seconds.
SAFE_AGE_NS = 2 * 10**9
NAMES_COMPARED = 1000


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
    started = time.time_ns()
    before = _states_on_all_ranks(annotations)
    key = fingerprint(JSON_FORMAT, classes, ignore_index, before.digest)
    answer: list[Any] = [None]
    if dist.is_main_process():
        answer = [(_look_up(key, classes, known, cache), started)]
    dist.broadcast_object_list(answer)
    found, started = answer[0]
    if found is not None:
        return Collected(found, Problems(), annotations)
    labels = LabelRange(len(classes) or None, ignore_index)
    result = scan_on_all_ranks(annotations, labels, num_threads)
    unsafe = _why_not_to_keep(before, result.states, started)
    if unsafe:
        print_log(unsafe, logger='current', level=logging.WARNING)
    of_classes = result.sums[:3] * labels.is_class
    largest = int(np.flatnonzero(of_classes[0]).max(initial=0))
    classes = classes or _numbered(largest + 1)
    # Without a fingerprint the next run scans again and repeats its report.
    is_clean = not (result.problems or unsafe)
    provenance = Provenance(
        dataset=source,
        files=len(annotations),
        mapping='; '.join(sorted(before.mappings)),
        ignore_index=ignore_index,
        fingerprint=key if is_clean else '',
        version=__version__,
    )
    counts, images, pixels = of_classes[:, : len(classes)].tolist()
    ignored = int(result.sums[0, labels.is_ignored].sum())
    stats = ClassStats(classes, counts, images, pixels, ignored, provenance)
    is_kept = is_clean and before.are_certain and dist.is_main_process()
    if cache is not None and is_kept:
        cache.store(stats)
    return Collected(stats, result.problems, annotations)


def _numbered(num_classes: int) -> list[str]:
    return [f'class {index}' for index in range(num_classes)]


def _states_on_all_ranks(annotations: Annotations) -> FileStates:
    """The states of all files; each rank looks at its shard."""
    rank, world_size = dist.get_dist_info()
    shard = file_states(annotations[rank::world_size])
    some = annotations[:: -(-len(annotations) // NAMES_COMPARED)]
    names = fingerprint(len(annotations), *(x.label_path for x in some))
    states, names_of_ranks = zip(
        *dist.all_gather_object((shard, names)), strict=True
    )
    if len({*names_of_ranks}) > 1:
        raise DataSetError(
            'The ranks do not see the same label files: check that every '
            'node has the same data set at the same place.'
        )
    return sum(states, start=FileStates())


def _look_up(
    key: str,
    classes: list[str],
    known: ClassStats | None,
    cache: StatsCache | None,
) -> ClassStats | None:
    """Earlier statistics of the same files, settings and classes."""
    if known is not None:
        is_same = known.provenance.fingerprint == key
        if is_same and classes in ([], known.classes):
            return known
        print_log(
            'The data set differs from that of the checkpoint, or had '
            'problems: its labels are counted again.',
            logger='current',
        )
    found = cache.load(key) if cache is not None else None
    if found is not None and classes in ([], found.classes):
        return found
    return None


def _why_not_to_keep(
    before: FileStates, after: FileStates, started: int
) -> str:
    """Why a later run could not tell whether the files have changed."""
    if after != before:
        return (
            'Labels or images were changed or removed while they were '
            'counted, so the counts may belong to no state of the data set '
            'and are not kept: start again when nothing writes there.'
        )
    changed, path = before.newest
    if changed > started - SAFE_AGE_NS:
        return (
            f'{printable(path)} was changed a moment ago, or its time lies '
            'in the future, so a further change might go unseen: the counts '
            'are not kept for the next run.'
        )
    return ''
