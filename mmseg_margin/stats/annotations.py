"""The annotation files of a data set, and their state on disk."""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Subset

from mmseg_margin.errors import DataSetError

from .label_files import (
    LOADING_ERRORS,
    Info,
    Label,
    LabelSource,
    PipelineLoader,
    fastest_loader,
)


@dataclass(frozen=True)
class FileStates:
    """The state of some label files; states of shards can be added.

    ``digest`` sums the hashes of everything that determines the counts: the
    mapping, and path, size and times of label and image.
    """

    digest: int = 0
    mappings: frozenset[str] = frozenset()  # in words
    are_certain: bool = True  # whether sizes and times reveal every change
    newest: tuple[int, str] = (0, '')  # latest change in ns, and its path

    def __add__(self, other: 'FileStates') -> 'FileStates':
        return FileStates(
            self.digest + other.digest,
            self.mappings | other.mappings,
            self.are_certain and other.are_certain,
            max(self.newest, other.newest),
        )


@dataclass(frozen=True)
class Annotation:
    """One label of the data set, where it is and how to load it."""

    position: int
    info: Info
    source: LabelSource
    loader: PipelineLoader

    @property
    def label_path(self) -> str:
        """The label file; some loaders derive it from the image's path."""
        info = self.info
        return str(info.get('seg_map_path') or info.get('img_path', '?'))

    def load(self) -> Label:
        """Delivered and stored values."""
        return self.loader.load(self.info, self.source)

    def state(self) -> FileStates:
        """Size and times of label and image, without opening them."""
        mapping, label, image = self.source
        name = '' if label is not None else self.label_path
        states: list[tuple] = []
        newest = (0, '')
        for path in map(os.path.abspath, filter(None, (label, image))):
            try:
                stat = os.stat(path)
            except OSError:
                states.append((path,))
                continue
            # Programs can reset the modification time, not the inode's time.
            times = stat.st_mtime_ns, stat.st_ctime_ns
            states.append((path, stat.st_size, *times))
            newest = max(newest, (max(times), path))
        digest = int(fingerprint(self.position, mapping, name, *states), 16)
        mappings, is_certain = frozenset([mapping]), label is not None
        return FileStates(digest, mappings, is_certain, newest)


@dataclass(frozen=True)
class Annotations:
    """Annotations that are created on iteration; slicing is cheap.

    A sample's info takes about a kilobyte, its row of numbers 24 bytes.

    Args:
        leaves: The data sets inside all wrappers, with their loaders.
        rows: Position, leaf and index in the leaf of each sample, (n, 3).
    """

    leaves: list[tuple[Any, PipelineLoader]]
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: slice | list[int]) -> 'Annotations':
        return Annotations(self.leaves, self.rows[part])

    def __iter__(self) -> Iterator[Annotation]:
        for position, leaf, index in map(np.ndarray.tolist, self.rows):
            dataset, loader = self.leaves[leaf]
            info = dataset.get_data_info(index)
            yield Annotation(position, info, loader.source(info), loader)

    def states(self) -> FileStates:
        """The sum of the states of all files."""
        return sum((x.state() for x in self), start=FileStates())


def list_annotations(dataset: Any) -> Annotations:
    """Every annotation once: repetition has no effect, concatenation adds."""
    leaves: list[tuple[Any, PipelineLoader]] = []
    pairs = _leaves_and_indices(dataset, leaves)
    rows = np.insert(pairs, 0, np.arange(len(pairs)), axis=1)
    return Annotations(leaves, rows)


def _leaves_and_indices(dataset: Any, leaves: list) -> NDArray[np.int64]:
    """Leaf and index of each sample, (n, 2); appends to ``leaves``."""
    # Data sets may have attributes called ``dataset``; no wrapper of mmengine
    # or mmseg has a pipeline of the kind that loads samples.
    pipeline: Any = getattr(dataset, 'pipeline', None)
    if hasattr(dataset, 'get_data_info') and hasattr(pipeline, 'transforms'):
        leaves.append((dataset, fastest_loader(pipeline.transforms)))
        indices = np.arange(len(dataset))
        leaf = np.full_like(indices, len(leaves) - 1)
        return np.stack([leaf, indices], axis=1)
    if hasattr(dataset, 'datasets'):  # ConcatDataset
        return np.concatenate(
            [_leaves_and_indices(part, leaves) for part in dataset.datasets]
        )
    if isinstance(dataset, Subset):
        inner = _leaves_and_indices(dataset.dataset, leaves)
        indices = np.asarray(dataset.indices, dtype=np.int64)
        return inner[indices % max(len(inner), 1)]
    if hasattr(dataset, 'dataset'):  # RepeatDataset, MultiImageMixDataset, ..
        return _leaves_and_indices(dataset.dataset, leaves)
    raise DataSetError(
        f'{type(dataset).__name__} has no get_data_info() with a pipeline, so '
        'its annotation files cannot be found: derive it from '
        'BaseSegDataset, or give class_counts to the loss.'
    )


def has_labels(dataset: Any) -> bool:
    """Whether the data set is one whose pipeline loads labels."""
    try:
        return any(x.load() for x in list_annotations(dataset)[:1])
    except (DataSetError, LookupError):  # no path, or nothing that loads it
        return False
    except LOADING_ERRORS:  # a bad label is still a label
        return True


def fingerprint(*parts: object) -> str:
    """A hash of anything that JSON can represent."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
