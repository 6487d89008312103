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

from mmseg_margin.config_tools import evenly_spaced
from mmseg_margin.terminal import printable

from .annotations import Annotations
from .class_stats import ClassStats
from .label_files import count_values
from .problems import with_fix

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
                failed = 'a sample of the data set could not be made'
                answer = [[f'{failed}: {reason}']]
    dist.broadcast_object_list(answer)
    return answer[0]


def _compare(annotations: Annotations, stats: ClassStats) -> list[str]:
    picked = annotations[evenly_spaced(len(annotations), MAX_SAMPLES)]
    datasets = [copy.copy(dataset) for dataset, _ in annotations.leaves]
    for dataset in datasets:  # their transforms may change their state
        dataset.pipeline = copy.deepcopy(dataset.pipeline)
    names = [
        f'class {k} ({printable(x)})' for k, x in enumerate(stats.classes)
    ]
    is_class = np.arange(len(names)) != stats.provenance.ignore_index
    fraction, files, samples = np.zeros((3, len(names)))
    found: list[str] = []
    for annotation, (place, leaf, index) in zip(
        picked, picked.rows.tolist(), strict=True
    ):
        label = _label_of(datasets[leaf][index], annotation.label_path)
        if label is None:
            return []
        in_file = annotation.load().delivered[: len(names)] * is_class
        in_sample = count_values(label).stored[: len(names)] * is_class
        fraction += in_file / max(in_file.sum(), 1) / len(picked)
        files += in_file > 0
        samples += in_sample > 0
        found += (
            f'sample {place} has pixels of {names[k]}, its file none'
            for k in np.flatnonzero((in_sample > 0) & (in_file == 0))
        )
    is_common = fraction >= SMALLEST_FRACTION
    is_common &= files >= min(FEWEST_FILES, len(picked))
    found += (
        f'{names[k]} has {100 * fraction[k]:.3g} % of the pixels in '
        f'{len(picked)} label files and none in the samples made of them'
        for k in np.flatnonzero(is_common & (samples == 0))
    )
    if not found:
        return []
    differ = 'samples of the data set have other labels than the files that '
    lines = [f'{differ}were counted', *found[:LINES_SHOWN]]
    return [with_fix('\n    '.join(lines), FIX)]


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
