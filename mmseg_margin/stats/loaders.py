"""How the labels of a data set are loaded: fast if possible, else as asked.

``LoadAnnotations`` is run once, on a label of all 256 values; the table that
comes of it is applied to the histogram of each file. Any other loading
transform is run itself.
"""

import copy
import io
import os
import threading
from typing import Any

import mmengine.fileio as fileio
import numpy as np
from mmcv.transforms import LoadImageFromFile
from mmseg.datasets.transforms import LoadAnnotations
from numpy.typing import NDArray
from PIL import Image

from .histogram import (
    NUM_VALUES,
    DecodedLabel,
    Histogram,
    check_channels,
    count_values,
    decode,
)
from .problems import check_label_file, check_regular

UPSTREAM_PACKAGES = ('mmcv', 'mmseg')
COLOUR_CHANNELS = (3, 4)
ALL_VALUES = 'mmseg_margin_all_values'

Info = dict[str, Any]
# What the pipeline delivers, (256,), and what the file holds.
LoadedLabel = tuple[Histogram, DecodedLabel]


class PipelineLoader:
    """Runs the pipeline until it has delivered a label, in many threads."""

    def __init__(self, transforms: list[Any]) -> None:
        self._transforms = transforms
        self._of_thread = threading.local()

    def load(self, info: Info) -> LoadedLabel:
        """The label of one sample as the train pipeline would deliver it."""
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
                labels = np.asarray(results['gt_seg_map'])
                if labels.ndim == 3 and labels.shape[-1] in COLOUR_CHANNELS:
                    check_channels(labels.shape[-1])
                label = count_values(labels)
                return label.histogram, label
        raise LookupError('no transform of the pipeline loads gt_seg_map')

    def sources(self, info: Info) -> tuple[str, str | None, str | None]:
        """What decides the values that are delivered.

        That is the mapping, for people; the local file of the label, if
        nothing else decides; and that of the image, if its header tells its
        size.
        """
        mapping = ' -> '.join(type(x).__name__ for x in self._transforms)
        return mapping, None, None  # the code decides as well


class FileLoader(PipelineLoader):
    """``LoadAnnotations`` with Pillow, applied to the histogram."""

    def __init__(self, transform: LoadAnnotations, image_loader: Any) -> None:
        self._transform = transform
        self._labels_are_local = _reads_local_files(transform)
        self._images_are_local = type(
            image_loader
        ) is LoadImageFromFile and _reads_local_files(image_loader)
        self._tables: dict[str, NDArray[np.uint8]] = {}

    def load(self, info: Info) -> LoadedLabel:
        mapping, local_file, _ = self.sources(info)
        if local_file is not None:
            check_label_file(local_file)
        path = info['seg_map_path']
        content = fileio.get(path, self._transform.backend_args)
        if content is None:  # what the LMDB backend says of a missing key
            raise FileNotFoundError(path)
        if not content:
            raise OSError('the file is empty')
        stored = decode(content)
        if mapping not in self._tables:
            self._tables[mapping] = self._values_delivered(info)
        table = self._tables[mapping]
        delivered = np.bincount(table, stored.histogram, NUM_VALUES)
        return delivered.astype(np.int64), stored

    def sources(self, info: Info) -> tuple[str, str | None, str | None]:
        label, image = info.get('seg_map_path'), info.get('img_path')
        return (
            f'LoadAnnotations(reduce_zero_label='
            f'{info.get("reduce_zero_label")}, '
            f'label_map={info.get("label_map")})',
            _if_local(label) if self._labels_are_local else None,
            _if_local(image) if self._images_are_local else None,
        )

    def _values_delivered(self, info: Info) -> NDArray[np.uint8]:
        """What the transform makes of the 256 values, shape (256,)."""
        fileio.register_backend(ALL_VALUES, _AllValues, force=True)
        probe = copy.copy(self._transform)
        probe.backend_args = {'backend': ALL_VALUES}
        return probe({**info, 'seg_fields': []})['gt_seg_map'].ravel()


class _AllValues(fileio.LocalBackend):
    """A label file that holds each value once, and needs no disk."""

    def get(self, filepath: object) -> bytes:
        values = np.arange(NUM_VALUES, dtype=np.uint8).reshape(16, 16)
        file = io.BytesIO()
        Image.fromarray(values).save(file, 'PNG')
        return file.getvalue()


def fastest_loader(transforms: list[Any]) -> PipelineLoader:
    """The fastest loader that delivers what the pipeline does."""
    image_loader = None
    for transform in transforms:
        if type(transform).__module__.split('.')[0] not in UPSTREAM_PACKAGES:
            break
        if isinstance(transform, LoadImageFromFile):
            image_loader = transform
        if type(transform) is LoadAnnotations:
            if transform.imdecode_backend == 'pillow':
                return FileLoader(transform, image_loader)
            break
    return PipelineLoader(transforms)


def _reads_local_files(transform: Any) -> bool:
    """Whether those without a prefix are on this machine."""
    backend = fileio.get_file_backend(
        '', backend_args=transform.backend_args, enable_singleton=True
    )
    return isinstance(backend, fileio.LocalBackend)


def _if_local(path: str | None) -> str | None:
    return path if path and '://' not in path else None
