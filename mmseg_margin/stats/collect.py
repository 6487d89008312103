"""Statistics of a data set: from a checkpoint, the cache, or a scan."""

import hashlib
import logging
import os
import time
from typing import Any, NamedTuple

import numpy as np
import torch
from mmengine import dist
from mmengine.logging import print_log

from mmseg_margin.errors import DataSetError
from mmseg_margin.version import __version__
from mmseg_margin.walks import leaf_datasets

from .cache import StatsCache
from .class_stats import ClassStats
from .findings import Findings, Kind
from .provenance import Provenance
from .samples import Samples, list_samples
from .scan import scan
from .survey import (
    Survey,
    fingerprint,
    survey_on_all_ranks,
    why_not_to_keep,
)
from .tally import LabelRange, Tally


class Collected(NamedTuple):
    """The statistics, what a scan found, and stored values if it ran."""

    stats: ClassStats
    findings: Findings
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
    samples = list_samples(dataset)
    if not samples:
        raise DataSetError(
            f'{_name(dataset)} has no samples: check data_root, data_prefix, '
            'the suffixes and ann_file.'
        )
    names = _class_names(dataset)
    if names:
        labels = LabelRange(len(names), labels.ignore_index)
    started = time.time_ns()
    before = survey_on_all_ranks(samples)
    key = fingerprint(before, names, labels)
    answer: list[Any] = [None]
    if dist.is_main_process():
        answer = [(_look_up(key, known, cache), started)]
    dist.broadcast_object_list(answer)
    found, started = answer[0]
    if found is not None:
        return Collected(found, Findings(), [])
    tally, findings = _scan_on_all_ranks(samples, labels, num_threads)
    unsafe = why_not_to_keep(before, survey_on_all_ranks(samples), started)
    if unsafe:
        key = ''
        print_log(unsafe, logger='current', level=logging.WARNING)
    stats = _make_stats(dataset, len(samples), before, tally, labels, key)
    is_clean = not (findings or unsafe) and before.is_cacheable
    if cache is not None and is_clean and dist.is_main_process():
        cache.store(stats)
    return Collected(stats, findings, np.flatnonzero(tally.stored).tolist())


def _look_up(
    key: str, known: ClassStats | None, cache: StatsCache | None
) -> ClassStats | None:
    if known is not None:
        if known.provenance.fingerprint == key:
            return known
        print_log(
            'The data set differs from that of the checkpoint: '
            'its labels are counted again.',
            logger='current',
        )
    return cache.load(key) if cache is not None else None


def _scan_on_all_ranks(
    samples: Samples, labels: LabelRange, num_threads: int | None
) -> tuple[Tally, Findings]:
    rank, world_size = dist.get_dist_info()
    findings = None
    try:
        tally, findings = scan(
            samples[rank::world_size], labels, num_threads, rank == 0
        )
    finally:  # a rank that fails tells the others, so that none waits for it
        parts = dist.all_gather_object((findings, _views(samples)))
    failed = [i for i, (part, _) in enumerate(parts) if part is None]
    if failed:
        raise DataSetError(
            f'Reading the labels failed on rank {failed}: see the error there.'
        )
    views = [view for _, view in parts]
    neighbours = zip(views, views[1:] + views[:1], strict=True)
    if any(a[::2] != b[:2] for a, b in neighbours):
        raise DataSetError(
            'The ranks do not see the same label files: check that every '
            'node has the same data set at the same place.'
        )
    sums = torch.from_numpy(tally.to_array())
    dist.all_reduce(sums)
    tally = Tally.from_array(sums.numpy())
    merged = Findings()
    for part, _ in parts:
        merged.add(part)
    if np.flatnonzero(tally.stored).tolist() == [0, 255]:
        merged.note(Kind.BINARY_MASK, 0, samples[0].label_path)
    return tally, merged


def _views(samples: Samples) -> tuple[int, str, str]:
    """The number of samples, a digest of this rank's and of the next's.

    If neighbours agree on these, every sample is read by exactly one rank,
    and none of them has to look at more than two shares.
    """
    rank, world_size = dist.get_dist_info()
    digests = []
    for share in (rank, (rank + 1) % world_size):
        digest = hashlib.sha256()
        for sample in samples[share::world_size]:
            digest.update(os.fsencode(sample.label_path) + b'\0')
        digests.append(digest.hexdigest())
    return len(samples), digests[0], digests[1]


def _make_stats(
    dataset: Any,
    num_files: int,
    source: Survey,
    tally: Tally,
    labels: LabelRange,
    key: str,
) -> ClassStats:
    present = np.flatnonzero(tally.pixels * labels.is_class)
    num_classes = labels.num_classes or int(present.max(initial=0)) + 1
    numbered = [f'class {index}' for index in range(num_classes)]

    def per_class(values: np.ndarray) -> list[int]:
        return (values * labels.is_class)[:num_classes].tolist()

    return ClassStats(
        classes=_class_names(dataset) or numbered,
        counts=per_class(tally.pixels),
        images=per_class(tally.images),
        image_pixels=per_class(tally.image_pixels),
        ignored=int(tally.pixels[labels.is_ignored].sum()),
        provenance=Provenance(
            dataset=_name(dataset),
            files=num_files,
            mapping='; '.join(sorted(source.mappings)),
            ignore_index=labels.ignore_index,
            fingerprint=key,
            version=__version__,
        ),
    )


def _name(dataset: Any) -> str:
    leaves = leaf_datasets(dataset)
    return ' + '.join(dict.fromkeys(type(leaf).__name__ for leaf in leaves))


def _class_names(dataset: Any) -> list[str]:
    """Empty if the data set does not name its classes."""
    metainfo = getattr(leaf_datasets(dataset)[0], 'metainfo', {})
    return [str(name) for name in metainfo.get('classes') or ()]
