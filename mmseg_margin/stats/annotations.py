"""From a built data set, through its wrappers, to its annotation files."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Subset

from mmseg_margin.errors import DataSetError

from .loaders import LabelLoader, make_loader

Leaf = tuple[Any, LabelLoader]


@dataclass(frozen=True)
class Annotation:
    """One label of the data set, where it is and how to load it."""

    position: int
    info: dict[str, Any]
    loader: LabelLoader

    @property
    def label_path(self) -> str:
        """Where the label comes from; some loaders find it by the image."""
        info = self.info
        return str(info.get('seg_map_path') or info.get('img_path', '?'))


class Annotations:
    """Annotations that are made when asked for; slices are as cheap.

    An info takes about a kilobyte, a row of numbers 24 bytes.

    Args:
        leaves: The data sets below all wrappers, with their loaders.
        rows: Position, leaf and index in the leaf of each, (n, 3).
    """

    def __init__(self, leaves: list[Leaf], rows: NDArray[np.int64]) -> None:
        self._leaves = leaves
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, part: slice) -> 'Annotations':
        return Annotations(self._leaves, self._rows[part])

    def __iter__(self) -> Iterator[Annotation]:
        for row in self._rows:
            position, leaf, index = row.tolist()
            dataset, loader = self._leaves[leaf]
            yield Annotation(position, dataset.get_data_info(index), loader)


def list_annotations(dataset: Any) -> Annotations:
    """Every annotation once: repeats are left out, concatenations kept."""
    leaves: list[Leaf] = []
    pairs = _walk(dataset, leaves)
    return Annotations(
        leaves, np.insert(pairs, 0, np.arange(len(pairs)), axis=1)
    )


def _walk(dataset: Any, leaves: list[Leaf]) -> NDArray[np.int64]:
    """Leaf and index of each sample, (n, 2); adds to ``leaves``."""
    if hasattr(dataset, 'datasets'):  # ConcatDataset
        return np.concatenate([_walk(x, leaves) for x in dataset.datasets])
    if isinstance(dataset, Subset):
        inner = _walk(dataset.dataset, leaves)
        indices = np.asarray(dataset.indices, dtype=np.int64)
        return inner[indices % max(len(inner), 1)]
    if hasattr(dataset, 'dataset'):  # RepeatDataset, MultiImageMixDataset, ..
        return _walk(dataset.dataset, leaves)
    if not hasattr(dataset, 'get_data_info'):
        raise DataSetError(
            f'{type(dataset).__name__} has no get_data_info(), so its '
            'annotation files cannot be found: derive it from '
            'BaseSegDataset, or give class_counts to the loss.'
        )
    leaves.append((dataset, make_loader(dataset)))
    indices = np.arange(len(dataset))
    return np.stack([np.full_like(indices, len(leaves) - 1), indices], axis=1)
