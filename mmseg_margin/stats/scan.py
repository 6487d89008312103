"""Statistics of a data set: earlier ones, or a scan on all ranks."""

import hashlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from mmengine import dist
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from torch.utils.data import Subset

from mmseg_margin.errors import DataSetError

from .class_stats import JSON_FORMAT, ClassStats, StatsCache
from .label_files import (
    LOADING_ERRORS,
    Annotation,
    Finding,
    LabelLoader,
    Problem,
    explain,
)

MAX_THREADS = 16
VALUES_SHOWN = 5

Mask = NDArray[np.bool_]  # of the 256 label values


class NoLabelsError(DataSetError):
    """The data set has no label files that could be counted."""


class Scanned(NamedTuple):
    """What was found in some label files.

    ``sums`` has one column for each of the 256 values. The rows are pixels,
    images, and labelled pixels of those images, by delivered value, that is
    after the loading transform; and pixels by the value in the file.
    """

    sums: NDArray[np.int64]
    findings: list[Finding]


class Collected(NamedTuple):
    """The statistics, what a scan found if there was one, and the loaders."""

    stats: ClassStats
    findings: list[Finding]
    loaders: list[LabelLoader]


def collect_stats(
    dataset: Any,
    num_classes: int | None = None,
    ignore_index: int | None = None,
    cache: StatsCache | None = None,
    num_threads: int | None = None,
) -> Collected:
    """The statistics of a data set, the same on every rank.

    Args:
        dataset: A built data set, wrapped or not.
        num_classes: Only used if the data set names no classes.
        ignore_index: The label to ignore; the data set's own if None.
        cache: Where to look first, and to store the result.
        num_threads: Threads of each rank; by default all available cores.
    """
    annotations = list_annotations(dataset)
    loaders = list(dict.fromkeys(x.loader for x in annotations))
    leaf = loaders[0].dataset
    named = getattr(leaf, 'metainfo', {}).get('classes')
    classes = [str(name) for name in named or range(num_classes or 255)]
    if ignore_index is None:
        ignore_index = getattr(leaf, 'ignore_index', 255)
    rank, world_size = dist.get_dist_info()
    shard = annotations[rank::world_size]
    key = _key_on_all_ranks(shard, classes, ignore_index)
    earlier: list[Any] = [None]
    if cache is not None and key and rank == 0:
        earlier = [cache.load(key)]
    dist.broadcast_object_list(earlier)
    if earlier[0] is not None:
        return Collected(earlier[0], [], loaders)
    is_ignored = np.arange(256) == ignore_index
    is_class = (np.arange(256) < len(classes)) & ~is_ignored
    sums, findings = _scan_on_all_ranks(
        shard, is_class, is_ignored, num_threads
    )
    is_mask = np.flatnonzero(sums[3]).tolist() == [0, 255]
    if is_mask and not sums[0, 1:255].any():
        # It explains values outside the classes.
        findings = [x for x in findings if x.problem is not Problem.VALUE]
        findings += (
            Finding(Problem.BINARY_MASK, x.label_path) for x in annotations
        )
    of_classes = (sums * is_class)[:, : len(classes)]
    counts, images, image_pixels, _ = of_classes.tolist()
    stats = ClassStats(
        classes,
        counts,
        images,
        image_pixels,
        ignored=int(sums[0, is_ignored].sum()),
        dataset=' + '.join({type(x.dataset).__name__: x for x in loaders}),
        files=len(annotations),
        # Without a fingerprint the next run scans and reports again.
        fingerprint='' if findings else key,
    )
    if cache is not None and stats.fingerprint and rank == 0:
        cache.store(stats)
    return Collected(stats, findings, loaders)


def list_annotations(dataset: Any) -> list[Annotation]:
    """Every annotation once: repetition has no effect, concatenation adds."""
    samples = _find_samples(dataset)
    if not samples:
        raise NoLabelsError(
            f'{type(dataset).__name__} has no samples: check data_root, '
            'data_prefix, the suffixes and ann_file.'
        )
    return [
        Annotation(loader.dataset.get_data_info(index), loader)
        for loader, index in samples
    ]


def _find_samples(dataset: Any) -> list[tuple[LabelLoader, int]]:
    """The loader of each sample, and its index in the loader's data set."""
    # Data sets may have attributes called ``dataset``; no wrapper of mmengine
    # or mmseg has a pipeline of the kind that loads samples.
    pipeline: Any = getattr(dataset, 'pipeline', None)
    if hasattr(dataset, 'get_data_info') and hasattr(pipeline, 'transforms'):
        loader = LabelLoader(dataset)
        return [(loader, index) for index in range(len(dataset))]
    if hasattr(dataset, 'datasets'):  # ConcatDataset
        return [x for part in dataset.datasets for x in _find_samples(part)]
    if hasattr(dataset, 'dataset'):  # RepeatDataset, MultiImageMixDataset, ..
        inner = _find_samples(dataset.dataset)
        if isinstance(dataset, Subset):
            return [inner[index % len(inner)] for index in dataset.indices]
        return inner
    raise NoLabelsError(
        f'{type(dataset).__name__} has no get_data_info() with a pipeline, so '
        'its annotation files cannot be found: derive it from '
        'BaseSegDataset, or give class_counts to the loss.'
    )


def _hash(*parts: object) -> int:
    """A hash of anything that JSON can represent."""
    return int(hashlib.sha256(json.dumps(parts).encode()).hexdigest(), 16)


def _key_on_all_ranks(shard: list[Annotation], *settings: object) -> str:
    """The hash of all that determines the counts, the same on every rank.

    It is empty if the state of a label is unknown, because the file is not on
    this machine, cannot be read, or is read by a transform of others.
    """
    digest = None
    if all(
        x.states[0] and not any(isinstance(y, OSError) for y in x.states)
        for x in shard
    ):  # a sum, so that any number of ranks has the same
        digest = sum(_hash(x.loader.mapping(x.info), x.states) for x in shard)
    digests = dist.all_gather_object(digest)
    if None in digests:
        return ''
    return f'{_hash(JSON_FORMAT, sum(digests), *settings):064x}'


def _scan_on_all_ranks(shard: list[Annotation], *options: Any) -> Scanned:
    """The result of all ranks, each of which scans its shard."""
    result = None
    try:
        result = read_labels(shard, *options)
    finally:  # even if this rank fails, so that no other waits for it
        findings = dist.all_gather_object(result and result.findings)
    failed = [i for i, found in enumerate(findings) if found is None]
    if failed:
        raise DataSetError(
            f'Reading the labels failed on rank {failed}: see the error there.'
        )
    sums = torch.from_numpy(result.sums)
    dist.all_reduce(sums)
    return Scanned(sums.numpy(), [x for found in findings for x in found])


def read_labels(
    annotations: Sequence[Annotation],
    is_class: Mask,
    is_ignored: Mask,
    num_threads: int | None = None,
) -> Scanned:
    """Read every label once, in threads; rank 0 shows the progress."""
    total = Scanned(np.zeros((4, 256), np.int64), [])
    read = partial(_scan_file, is_class, is_ignored)
    cores_per_rank = (os.cpu_count() or 1) // int(
        os.environ.get('LOCAL_WORLD_SIZE', 1)
    )
    threads = num_threads or min(MAX_THREADS, max(1, cores_per_rank))
    pool = ThreadPoolExecutor(threads)
    try:
        for found in track(
            pool.map(read, annotations),
            'Reading labels',
            len(annotations),
            console=Console(stderr=True),
            disable=not dist.is_main_process(),
        ):
            total.sums[:] += found.sums
            total.findings.extend(found.findings)
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C
    return total


def list_values(values: Sequence[int]) -> str:
    """The first few label values."""
    more = ', ...' if len(values) > VALUES_SHOWN else ''
    return ', '.join(map(str, values[:VALUES_SHOWN])) + more


def _scan_file(
    is_class: Mask, is_ignored: Mask, annotation: Annotation
) -> Scanned:
    path, size = annotation.label_path, None
    sums = np.zeros((4, 256), np.int64)
    findings = []
    try:
        label = annotation.load()
    except LOADING_ERRORS as error:
        findings.append(explain(path, error))
    else:
        size, is_shown = label.size, label.delivered > 0
        labelled = label.delivered[is_class].sum()
        sums[:] = label.delivered, is_shown, is_shown * labelled, label.stored
        is_unknown = is_shown & ~(is_class | is_ignored)
        values = [*np.flatnonzero(is_unknown).tolist(), *label.outside]
        if values:
            text = f'{path}: {list_values(values)}'
            findings.append(Finding(Problem.VALUE, text, values))
        findings += (Finding(problem, path) for problem in label.problems)
    findings += annotation.check_image(size)
    return Scanned(sums, findings)
