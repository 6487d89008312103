"""How the labels of a data set are loaded: fast if possible, else as asked.

``LoadAnnotations`` is applied to the 256 values once, and the resulting table
to the histogram of each file. Any other loading transform is run itself.
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
    decode,
    histogram_of_any_type,
)
from .problems import check_label_file, check_regular

UPSTREAM_PACKAGES = ('mmcv', 'mmseg')
COLOUR_CHANNELS = (3, 4)
ALL_VALUES = 'mmseg_margin_all_values'

Info = dict[str, Any]
# What the pipeline delivers, (256,), and what the file holds.
LoadedLabel = tuple[Histogram, DecodedLabel]


def make_loader(dataset: Any) -> 'LabelLoader':
    """The fastest loader that delivers what the data set's pipeline does."""
    transforms = list(dataset.pipeline.transforms)
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


class FileLoader:
    """``LoadAnnotations`` with Pillow, applied to the histogram."""

    def __init__(self, transform: LoadAnnotations, image_loader: Any) -> None:
        self._transform = transform
        self._backend = _local_backend(transform)
        self._images_are_local = type(image_loader) is LoadImageFromFile and (
            _local_backend(image_loader) is not None
        )
        self._tables: dict[str, NDArray[np.uint8]] = {}

    def load(self, info: Info) -> LoadedLabel:
        path = info['seg_map_path']
        if self._backend is not None and '://' not in path:
            check_label_file(path)
            content = self._backend.get(path)
        else:
            args = self._transform.backend_args
            content = fileio.get(path, backend_args=args)
        if content is None:  # what the LMDB backend says of a missing key
            raise FileNotFoundError(path)
        if not content:
            raise OSError('the file is empty')
        stored = decode(content)
        mapping = self.describe(info)
        if mapping not in self._tables:
            self._tables[mapping] = value_table(self._transform, info)
        delivered = np.bincount(
            self._tables[mapping], stored.histogram, NUM_VALUES
        )
        return delivered.astype(np.int64), stored

    def describe(self, info: Info) -> str:
        return (
            'LoadAnnotations('
            f'reduce_zero_label={info.get("reduce_zero_label")}, '
            f'label_map={info.get("label_map")})'
        )

    def label_file(self, info: Info) -> str | None:
        is_local = self._backend is not None
        return _local(info.get('seg_map_path'), is_local)

    def image_file(self, info: Info) -> str | None:
        return _local(info.get('img_path'), self._images_are_local)


class PipelineLoader:
    """Runs the pipeline until it has delivered a label.

    As :class:`FileLoader`, it is used by several threads at once.
    """

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
                label = histogram_of_any_type(labels)
                return label.histogram, label
        raise LookupError('no transform of the pipeline loads gt_seg_map')

    def describe(self, info: Info) -> str:
        """The mapping from stored to delivered values, for people."""
        return ' -> '.join(type(x).__name__ for x in self._transforms)

    def label_file(self, info: Info) -> str | None:
        """The label's local file, if it alone decides what is delivered."""
        return None  # the code of the transforms decides as well

    def image_file(self, info: Info) -> str | None:
        """The image's local file, if its header tells the image's size."""
        return None


LabelLoader = FileLoader | PipelineLoader


def value_table(transform: LoadAnnotations, info: Info) -> NDArray[np.uint8]:
    """What the transform makes of the 256 values, shape (256,)."""
    fileio.register_backend(ALL_VALUES, _AllValues, force=True)
    probe = copy.copy(transform)
    probe.backend_args = {'backend': ALL_VALUES}
    return probe({**info, 'seg_fields': []})['gt_seg_map'].ravel()


class _AllValues(fileio.BaseStorageBackend):
    """A label file that holds each value once, and needs no disk."""

    def get(self, filepath: object) -> bytes:
        values = np.arange(NUM_VALUES, dtype=np.uint8).reshape(16, 16)
        file = io.BytesIO()
        Image.fromarray(values).save(file, 'PNG')
        return file.getvalue()

    def get_text(self, filepath: object) -> str:
        raise NotImplementedError('labels are no text')


def _local_backend(transform: Any) -> fileio.LocalBackend | None:
    """What reads the files without a prefix, if they are on this machine."""
    backend = fileio.get_file_backend(
        '', backend_args=transform.backend_args, enable_singleton=True
    )
    return backend if isinstance(backend, fileio.LocalBackend) else None


def _local(path: str | None, is_local: bool) -> str | None:
    return path if is_local and path and '://' not in path else None
