"""Statistics of a data set: from a checkpoint, the cache, or a scan."""

import hashlib
import logging
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from mmengine import dist
from mmengine.logging import print_log

from mmseg_margin.errors import DataSetError
from mmseg_margin.version import __version__
from mmseg_margin.walks import leaf_datasets

from .annotations import Annotations, list_annotations
from .cache import StatsCache
from .class_stats import ClassStats, Provenance
from .fingerprint import stamp_on_all_ranks, why_not_to_keep
from .problems import Kind, Problems
from .scan import LabelRange, LabelSums, scan


class Collected(NamedTuple):
    """The statistics, what a scan found, and stored values if it ran."""

    stats: ClassStats
    problems: Problems
    stored_values: list[int]


def collect_stats(
    dataset: Any,
    labels: LabelRange,
    cache: StatsCache | None = None,
    known: ClassStats | None = None,
    num_threads: int | None = None,
) -> Collected:
    """The statistics of a data set, the same on every rank.

    Each rank reads its share of the files; the first looks into the cache
    and shows the progress.

    Args:
        dataset: A built data set, wrapped or not.
        labels: ``num_classes`` is only used if the data set names no classes.
        cache: Where to look first, and to store the result.
        known: Earlier statistics, taken if the data set is still the same.
        num_threads: Threads of each rank; the cores of the machine if None.
    """
    leaves = leaf_datasets(dataset)
    source = ' + '.join(dict.fromkeys(type(x).__name__ for x in leaves))
    annotations = list_annotations(dataset)
    if not annotations:
        raise DataSetError(
            f'{source} has no samples: check data_root, data_prefix, the '
            'suffixes and ann_file.'
        )
    named = getattr(leaves[0], 'metainfo', {}).get('classes') or ()
    classes = [str(name) for name in named]
    if classes:
        labels = LabelRange(len(classes), labels.ignore_index)
    started = time.time_ns()
    before = stamp_on_all_ranks(annotations)
    key = before.fingerprint(classes, labels)

    def is_right(stats: ClassStats) -> bool:
        if classes:
            return stats.classes == classes
        return labels.num_classes in (None, len(stats.classes))

    answer: list[Any] = [None]
    if dist.is_main_process():
        answer = [(_look_up(key, is_right, known, cache), started)]
    dist.broadcast_object_list(answer)
    found, started = answer[0]
    if found is not None:
        return Collected(found, Problems(), [])
    sums, problems = _scan_on_all_ranks(annotations, labels, num_threads)
    unsafe = why_not_to_keep(before, stamp_on_all_ranks(annotations), started)
    if unsafe:
        key = ''
        print_log(unsafe, logger='current', level=logging.WARNING)
    provenance = Provenance(
        dataset=source,
        files=len(annotations),
        mapping='; '.join(sorted(before.mappings)),
        ignore_index=labels.ignore_index,
        fingerprint=key,
        version=__version__,
    )
    stats = _make_stats(classes, sums, labels, provenance)
    is_clean = not (problems or unsafe) and before.is_cacheable
    if cache is not None and is_clean and dist.is_main_process():
        cache.store(stats)
    return Collected(stats, problems, sums.stored_values)


def _look_up(
    key: str,
    is_right: Callable[[ClassStats], bool],
    known: ClassStats | None,
    cache: StatsCache | None,
) -> ClassStats | None:
    if known is not None:
        if known.provenance.fingerprint == key and is_right(known):
            return known
        print_log(
            'The data set differs from that of the checkpoint: '
            'its labels are counted again.',
            logger='current',
        )
    found = cache.load(key) if cache is not None else None
    return found if found is not None and is_right(found) else None


def _scan_on_all_ranks(
    annotations: Annotations, labels: LabelRange, num_threads: int | None
) -> tuple[LabelSums, Problems]:
    rank, world_size = dist.get_dist_info()
    problems = None
    try:
        sums, problems = scan(
            annotations[rank::world_size], labels, num_threads, rank == 0
        )
    finally:  # a rank that fails tells the others, so that none waits for it
        parts = dist.all_gather_object((problems, _listing(annotations)))
    failed = [i for i, (part, _) in enumerate(parts) if part is None]
    if failed:
        raise DataSetError(
            f'Reading the labels failed on rank {failed}: see the error there.'
        )
    own, of_next = zip(*(listing for _, listing in parts), strict=True)
    if of_next != own[1:] + own[:1]:
        raise DataSetError(
            'The ranks do not see the same label files: check that every '
            'node has the same data set at the same place.'
        )
    dist.all_reduce(torch.from_numpy(sums.rows))
    merged = Problems()
    for part, _ in parts:
        merged.add(part)
    if sums.stored_values != [0, 255]:
        merged.pop(Kind.BINARY_MASK, None)
    return sums, merged


def _listing(annotations: Annotations) -> list[str]:
    """Digests of the labels of this rank and of those of the next.

    If neighbours agree on these, every label is read by exactly one rank,
    and none of them has to look at more than two shares.
    """
    rank, world_size = dist.get_dist_info()
    digests = []
    for share in (rank, (rank + 1) % world_size) if world_size > 1 else ():
        digest = hashlib.sha256(b'%d' % len(annotations))
        for annotation in annotations[share::world_size]:
            digest.update(os.fsencode(annotation.label_path) + b'\0')
        digests.append(digest.hexdigest())
    return digests or ['', '']


def _make_stats(
    classes: list[str],
    sums: LabelSums,
    labels: LabelRange,
    provenance: Provenance,
) -> ClassStats:
    of_classes = sums.rows[:3] * labels.is_class
    largest = int(np.flatnonzero(of_classes[0]).max(initial=0))
    num_classes = labels.num_classes or largest + 1
    counts, images, image_pixels = of_classes[:, :num_classes].tolist()
    return ClassStats(
        classes or [f'class {index}' for index in range(num_classes)],
        counts,
        images,
        image_pixels,
        int(sums.rows[0, labels.is_ignored].sum()),
        provenance,
    )
