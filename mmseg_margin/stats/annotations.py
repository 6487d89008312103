"""The annotation files of a data set: which they are, and in which state."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Subset

from mmseg_margin.errors import DataSetError

from .loaders import Info, PipelineLoader, fastest_loader


@dataclass(frozen=True)
class Annotation:
    """One label of the data set, where it is and how to load it."""

    position: int
    info: Info
    loader: PipelineLoader

    @property
    def label_path(self) -> str:
        """Where the label comes from; some loaders find it by the image."""
        info = self.info
        return str(info.get('seg_map_path') or info.get('img_path', '?'))


@dataclass(frozen=True)
class Annotations:
    """Annotations that are made when asked for; slices are as cheap.

    An info takes about a kilobyte, a row of numbers 24 bytes.

    Args:
        leaves: The data sets below all wrappers, with their loaders.
        rows: Position, leaf and index in the leaf of each, (n, 3).
    """

    leaves: list[tuple[Any, PipelineLoader]]
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: slice) -> 'Annotations':
        return Annotations(self.leaves, self.rows[part])

    def __iter__(self) -> Iterator[Annotation]:
        for row in self.rows:
            position, leaf, index = row.tolist()
            dataset, loader = self.leaves[leaf]
            yield Annotation(position, dataset.get_data_info(index), loader)


def list_annotations(dataset: Any) -> Annotations:
    """Every annotation once: repeats are left out, concatenations kept."""
    leaves: list[tuple[Any, PipelineLoader]] = []
    pairs = _walk(dataset, leaves)
    rows = np.insert(pairs, 0, np.arange(len(pairs)), axis=1)
    return Annotations(leaves, rows)


def _walk(dataset: Any, leaves: list) -> NDArray[np.int64]:
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
    leaves.append((dataset, fastest_loader(dataset.pipeline.transforms)))
    indices = np.arange(len(dataset))
    return np.stack([np.full_like(indices, len(leaves) - 1), indices], axis=1)


@dataclass(frozen=True)
class FileStates:
    """Those of a share of the files; the sum is that of all, however shared.

    Args:
        digest: Sum of the hashes of all that decides what is counted: the
            mapping, and path, size and times of label and image.
        mappings: From stored to delivered values, for people.
        are_certain: Whether size and times of local files tell of every
            change.
        newest: Newest time of a change, in ns, and path.
    """

    digest: int = 0
    mappings: frozenset[str] = frozenset()
    are_certain: bool = True
    newest: tuple[int, str] = (0, '')

    def __add__(self, other: 'FileStates') -> 'FileStates':
        return FileStates(
            self.digest + other.digest,
            self.mappings | other.mappings,
            self.are_certain and other.are_certain,
            max(self.newest, other.newest),
        )


def file_states(annotations: Iterable[Annotation]) -> FileStates:
    """Look at every file from the outside."""
    return sum(map(_state_of, annotations), start=FileStates())


def _state_of(annotation: Annotation) -> FileStates:
    mapping, label, image = annotation.loader.sources(annotation.info)
    name = '' if label is not None else annotation.label_path
    states: list[tuple] = []
    newest = (0, '')
    for path in map(os.path.abspath, filter(None, (label, image))):
        try:
            stat = os.stat(path)
        except OSError:
            states.append((path,))
            continue
        # Programs can set back the time of the content, not of the inode.
        times = stat.st_mtime_ns, stat.st_ctime_ns
        states.append((path, stat.st_size, *times))
        newest = max(newest, (max(times), path))
    digest = fingerprint(annotation.position, mapping, name, *states)
    return FileStates(
        int(digest, 16), frozenset([mapping]), label is not None, newest
    )


def fingerprint(*parts: object) -> str:
    """A hash of anything that JSON can hold."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
