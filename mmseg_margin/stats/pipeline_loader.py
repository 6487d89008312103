"""The general way: run the transforms of the train pipeline."""

import copy
import os
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .decode import NotAnIndexMapError, histogram
from .file_errors import check_regular
from .label_loader import Info, LoadedLabel
from .tally import NUM_VALUES

COLOUR_CHANNELS = (3, 4)


class PipelineLoader:
    """Any other way: run the pipeline until it has delivered a label."""

    def __init__(self, transforms: list[Any]) -> None:
        self._transforms = transforms
        self._of_thread = threading.local()

    def load(self, info: Info) -> LoadedLabel:
        if not hasattr(self._of_thread, 'transforms'):
            # Transforms are written for worker processes, not for threads.
            self._of_thread.transforms = copy.deepcopy(self._transforms)
        path = info.get('seg_map_path')
        if path and os.path.exists(path):
            check_regular(path)
        results = copy.deepcopy(info)
        for transform in self._of_thread.transforms:
            results = transform(results)
            if 'gt_seg_map' in results:
                return _histogram_of(np.asarray(results['gt_seg_map']))
        raise LookupError('no transform of the pipeline loads gt_seg_map')

    def describe(self, info: Info) -> str:
        return ' -> '.join(type(x).__name__ for x in self._transforms)

    def label_file(self, info: Info) -> str | None:
        return None  # the code of the transforms decides as well

    def image_file(self, info: Info) -> str | None:
        return None


def _histogram_of(labels: NDArray) -> LoadedLabel:
    """A loaded label of any shape and type."""
    if labels.ndim == 3 and labels.shape[-1] in COLOUR_CHANNELS:
        raise NotAnIndexMapError(
            f'{labels.shape[-1]} channels instead of one class index'
        )
    if labels.dtype == np.uint8:
        counts = histogram(np.ascontiguousarray(labels).ravel())
        return LoadedLabel(counts, counts)
    values, pixels = np.unique(labels, return_counts=True)
    if not np.equal(values, np.rint(values)).all():
        raise NotAnIndexMapError('values that are not whole numbers')
    is_byte = (values >= 0) & (values < NUM_VALUES)
    counts = np.zeros(NUM_VALUES, dtype=np.int64)
    counts[values[is_byte].astype(np.int64)] = pixels[is_byte]
    beyond = tuple(int(value) for value in values[~is_byte])
    return LoadedLabel(counts, counts, beyond_uint8=beyond)
