"""Whether samples of a data set have the labels that the scan counts.

The scan stops at the loading transform. A later transform, or an overridden
``prepare_data``, may change label values as well.
"""

import copy
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from mmengine import dist
from numpy.typing import NDArray

from mmseg_margin.terminal import printable

from .annotations import Annotations
from .class_stats import ClassStats
from .label_files import count_values

MAX_SAMPLES = 10
LINES_SHOWN = 5
# Random crops may lose smaller classes, and those of one or two images.
SMALLEST_FRACTION = 0.01
FEWEST_FILES = 3
FIX = (
    'if a transform after LoadAnnotations or prepare_data() changes labels, '
    'change them in the loading transform (a subclass of LoadAnnotations), '
    'which the scan runs, or give class_counts to the loss'
)


def compare_samples(annotations: Annotations, stats: ClassStats) -> list[str]:
    """A warning if samples differ from their label files, on every rank."""
    answer: list[Any] = [None]
    if dist.is_main_process():
        with _fixed_random_state():
            try:
                answer = [_compare(annotations, stats)]
            except Exception as error:  # any error of the user's pipeline
                reason = printable(f'{type(error).__name__}: {error}')
                answer = [
                    [f'a sample of the data set could not be made: {reason}']
                ]
    dist.broadcast_object_list(answer)
    return answer[0]


def _compare(annotations: Annotations, stats: ClassStats) -> list[str]:
    number = min(MAX_SAMPLES, len(annotations))
    places = np.linspace(0, len(annotations) - 1, number, dtype=np.int64)
    picked = Annotations(annotations.leaves, annotations.rows[places])
    datasets = [_copy(dataset) for dataset, _ in annotations.leaves]
    is_class = np.arange(len(stats.classes)) != stats.provenance.ignore_index
    fraction, files, samples = np.zeros((3, len(is_class)))
    found: list[str] = []
    for annotation, (place, leaf, index) in zip(
        picked, picked.rows.tolist(), strict=True
    ):
        label = _label_of(datasets[leaf][index], annotation.label_path)
        if label is None:
            return []
        in_file = annotation.load()[0][: len(is_class)] * is_class
        in_sample = count_values(label).histogram[: len(is_class)] * is_class
        fraction += in_file / max(in_file.sum(), 1) / number
        files += in_file > 0
        samples += in_sample > 0
        found += (
            f'sample {place} has pixels of {_name(stats, k)}, its file none'
            for k in _indices((in_sample > 0) & (in_file == 0))
        )
    is_common = (fraction >= SMALLEST_FRACTION) & (
        files >= min(FEWEST_FILES, number)
    )
    found += (
        f'{_name(stats, k)} has {100 * fraction[k]:.3g} % of the pixels in '
        f'{number} label files and none in the samples made of them'
        for k in _indices(is_common & (samples == 0))
    )
    if not found:
        return []
    lines = '\n'.join(f'    {line}' for line in found[:LINES_SHOWN])
    return [
        'samples of the data set have other labels than the files that were '
        f'counted\n{lines}\n    likely fix: {FIX}.'
    ]


def _indices(mask: NDArray[np.bool_]) -> list[int]:
    return np.flatnonzero(mask).tolist()


def _name(stats: ClassStats, k: int) -> str:
    return f'class {k} ({printable(stats.classes[k])})'


def _copy(dataset: Any) -> Any:
    """A copy whose transforms may change their state."""
    dataset = copy.copy(dataset)
    dataset.pipeline = copy.deepcopy(dataset.pipeline)
    return dataset


def _label_of(sample: Any, path: str) -> NDArray | None:
    """The label in a sample of the data set, if it is that of this file."""
    if not isinstance(sample, Mapping):
        return None
    packed = sample.get('data_samples')
    if packed is None:
        return sample.get('gt_seg_map')
    # mmengine replaces samples for which the pipeline returns None.
    if packed.metainfo.get('seg_map_path', path) != path:
        return None
    return packed.gt_sem_seg.data.numpy() if 'gt_sem_seg' in packed else None


@contextmanager
def _fixed_random_state() -> Iterator[None]:
    """Fixed seeds inside; the random state outside is restored."""
    state = random.getstate()
    numpy_state = np.random.get_state()  # noqa: NPY002  (used by transforms)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(state)
            np.random.set_state(numpy_state)  # noqa: NPY002
