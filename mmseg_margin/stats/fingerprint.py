"""What tells one state of a data set from another, without reading it."""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

from mmengine import dist

from mmseg_margin.terminal import printable

from .annotations import Annotation, Annotations
from .class_stats import JSON_FORMAT
from .scan import LabelRange

MODULUS = 2**256
# A file changed twice within the resolution of its time looks as if it had
# been changed once; the coarsest file systems count in steps of two seconds.
SAFE_AGE_NS = 2 * 10**9


@dataclass(frozen=True)
class FileStamps:
    """Those of a share of the files; the sum is that of all, however shared.

    Args:
        total: Sum of the hashes of all that decides what is counted: the
            mapping, and path, size and times of label and image.
        mappings: From stored to delivered values, for people.
        is_cacheable: Whether size and times of local files tell of every
            change.
        newest: Newest time of a change, in ns, and path.
    """

    total: int = 0
    mappings: frozenset[str] = frozenset()
    is_cacheable: bool = True
    newest: tuple[int, str] = (0, '')

    def __add__(self, other: 'FileStamps') -> 'FileStamps':
        return FileStamps(
            (self.total + other.total) % MODULUS,
            self.mappings | other.mappings,
            self.is_cacheable and other.is_cacheable,
            max(self.newest, other.newest),
        )

    def fingerprint(self, classes: Sequence[str], labels: LabelRange) -> str:
        """A hash of all that decides the statistics."""
        return _hash(
            JSON_FORMAT,
            list(classes),
            labels.num_classes,
            labels.ignore_index,
            self.total,
        ).hex()


def stamp(annotations: Iterable[Annotation]) -> FileStamps:
    """Look at every file from the outside."""
    return reduce(lambda x, y: x + _stamp_one(y), annotations, FileStamps())


def stamp_on_all_ranks(annotations: Annotations) -> FileStamps:
    """The stamps of all files, each rank looking at its share."""
    rank, world_size = dist.get_dist_info()
    shares = dist.all_gather_object(stamp(annotations[rank::world_size]))
    return sum(shares, start=FileStamps())


def why_not_to_keep(before: FileStamps, after: FileStamps, start: int) -> str:
    """Why the next run could not tell whether the files are still these."""
    if after != before:
        return (
            'Labels or images were changed or removed while they were '
            'counted, so the counts may belong to no state of the data set '
            'and are not kept: start again when nothing writes there.'
        )
    changed, path = before.newest
    if changed > start - SAFE_AGE_NS:
        return (
            f'{printable(path)} was changed a moment ago, or its time lies '
            'in the future, so a further change might go unseen: the counts '
            'are not kept for the next run.'
        )
    return ''


def _stamp_one(annotation: Annotation) -> FileStamps:
    loader, info = annotation.loader, annotation.info
    mapping, label = loader.describe(info), loader.label_file(info)
    files = [x for x in (label, loader.image_file(info)) if x is not None]
    states = [_state_of(os.path.abspath(x)) for x in files]
    name = '' if label is not None else annotation.label_path
    digest = _hash(annotation.position, mapping, name, *states)
    times = [(max(state[2:]), state[0]) for state in states if state[1:]]
    return FileStamps(
        int.from_bytes(digest, 'big'),
        frozenset([mapping]),
        label is not None,
        max(times, default=(0, '')),
    )


def _state_of(path: str) -> tuple:
    """Path, size, and times of change of content and of inode.

    Programs can set back the first but not the second.
    """
    try:
        stat = os.stat(path)
    except OSError:
        return (path,)
    return path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def _hash(*parts: object) -> bytes:
    return hashlib.sha256(json.dumps(parts).encode()).digest()
