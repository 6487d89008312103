"""The fast way: mmseg's ``LoadAnnotations`` applied to the histogram."""

import copy
import tempfile
import threading
from pathlib import Path
from typing import Any

import mmengine.fileio as fileio
import numpy as np
from mmcv.transforms import LoadImageFromFile
from mmseg.datasets.transforms import LoadAnnotations
from numpy.typing import NDArray
from PIL import Image

from .decode import LabelDecoder
from .file_errors import check_label_file
from .label_loader import Info, LoadedLabel
from .tally import NUM_VALUES


class FileLoader:
    """``LoadAnnotations`` with Pillow, applied to the histogram."""

    def __init__(self, transform: LoadAnnotations, image_loader: Any) -> None:
        self._transform = transform
        self._image_loader = image_loader
        self._tables: dict[str, NDArray[np.uint8]] = {}
        self._of_thread = threading.local()

    def load(self, info: Info) -> LoadedLabel:
        path = info['seg_map_path']
        if _local(path, self._transform):
            check_label_file(path)
        content = fileio.get(path, backend_args=self._transform.backend_args)
        if content is None:  # what the LMDB backend says of a missing key
            raise FileNotFoundError(path)
        if not content:
            raise OSError('the file is empty')
        if not hasattr(self._of_thread, 'decode'):
            self._of_thread.decode = LabelDecoder()
        stored, size, wrapped = self._of_thread.decode(content)
        table = self._value_table(info)
        delivered = np.bincount(table, stored, NUM_VALUES).astype(np.int64)
        return LoadedLabel(delivered, stored, size, wrapped)

    def describe(self, info: Info) -> str:
        return (
            'LoadAnnotations('
            f'reduce_zero_label={info.get("reduce_zero_label")}, '
            f'label_map={info.get("label_map")})'
        )

    def label_file(self, info: Info) -> str | None:
        return _local(info.get('seg_map_path'), self._transform)

    def image_file(self, info: Info) -> str | None:
        if type(self._image_loader) is not LoadImageFromFile:
            return None
        return _local(info.get('img_path'), self._image_loader)

    def _value_table(self, info: Info) -> NDArray[np.uint8]:
        key = self.describe(info)
        if key not in self._tables:
            self._tables[key] = value_table(self._transform, info)
        return self._tables[key]


def value_table(transform: LoadAnnotations, info: Info) -> NDArray[np.uint8]:
    """What the transform makes of the 256 values, shape (256,)."""
    probe = copy.copy(transform)
    probe.backend_args = None
    values = np.arange(NUM_VALUES, dtype=np.uint8).reshape(16, 16)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / 'values.png')
        Image.fromarray(values).save(path)
        results = {**info, 'seg_map_path': path, 'seg_fields': []}
        return probe(results)['gt_seg_map'].ravel()


def _local(path: str | None, transform: Any) -> str | None:
    if path is None:
        return None
    args = transform.backend_args
    backend = fileio.get_file_backend(
        path, backend_args=args, enable_singleton=True
    )
    return path if isinstance(backend, fileio.LocalBackend) else None
