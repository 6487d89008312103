"""Whether samples of a data set have the labels that the scan counts."""

import copy
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from mmengine import dist
from numpy.typing import NDArray

from mmseg_margin.config_tools import evenly_spaced
from mmseg_margin.terminal import printable

from .class_stats import ClassStats
from .label_files import count_values, with_fix
from .scan import Annotations

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
    """A warning if samples differ from their label files, on every rank.

    The scan stops at the loading transform. A later transform, or an
    overridden ``prepare_data``, may change label values as well.
    """
    found: list[Any] = [[]]
    if dist.is_main_process():
        # The random numbers of the training must not change.
        state = random.getstate()
        numpy_state = np.random.get_state()  # noqa: NPY002  (of transforms)
        with torch.random.fork_rng(devices=[]):
            for seed in (random.seed, np.random.seed, torch.manual_seed):
                seed(0)
            try:
                found = [_differences(annotations, stats)]
            except Exception as error:  # any error of the user's pipeline
                reason = printable(f'{type(error).__name__}: {error}')
                failed = 'a sample of the data set could not be made'
                found = [[f'{failed}: {reason}']]
        random.setstate(state)
        np.random.set_state(numpy_state)  # noqa: NPY002
    dist.broadcast_object_list(found)
    return found[0]


def _differences(annotations: Annotations, stats: ClassStats) -> list[str]:
    """A warning if the labels of some samples differ from their files'."""
    picked = annotations[evenly_spaced(len(annotations), MAX_SAMPLES)]
    datasets = [copy.copy(dataset) for dataset, _ in annotations.leaves]
    for dataset in datasets:  # their transforms may change their state
        dataset.pipeline = copy.deepcopy(dataset.pipeline)
    histograms = []
    for annotation, (_, leaf, index) in zip(picked, picked.rows, strict=True):
        label = _label_of(datasets[leaf][int(index)], annotation.label_path)
        if label is None:
            return []
        both = annotation.load().delivered, count_values(label).stored
        histograms.append(both)
    names = [
        f'class {k} ({printable(x)})' for k, x in enumerate(stats.classes)
    ]
    is_class = np.arange(len(names)) != stats.provenance.ignore_index
    # Pixels of each sample and class, (n, K).
    in_file, in_sample = (
        np.array(pixels)[:, : len(names)] * is_class
        for pixels in zip(*histograms, strict=True)
    )
    fraction = (in_file / in_file.sum(1, keepdims=True).clip(1)).mean(0)
    is_common = fraction >= SMALLEST_FRACTION
    is_common &= (in_file > 0).sum(0) >= min(FEWEST_FILES, len(picked))
    found = [
        f'sample {picked.rows[i, 0]} has pixels of {names[k]}, its file none'
        for i, k in np.argwhere((in_sample > 0) & (in_file == 0))
    ]
    found += (
        f'{names[k]} has {100 * fraction[k]:.3g} % of the pixels in '
        f'{len(picked)} label files and none in the samples made of them'
        for k in np.flatnonzero(is_common & ~in_sample.any(0))
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
