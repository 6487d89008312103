"""What can be said of label files without reading them, in any shares."""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

from mmengine import dist

from .class_stats import JSON_FORMAT
from .samples import Sample, Samples
from .tally import LabelRange

MODULUS = 2**256
# A file changed twice within the resolution of its time looks as if it had
# been changed once; the coarsest file systems count in steps of two seconds.
SAFE_AGE_NS = 2 * 10**9


@dataclass(frozen=True)
class Survey:
    """A share of the samples; the sum is that of all, however shared out.

    Args:
        stamps: Sum of the hashes of all that decides what is counted: the
            mapping, and path, size and times of label and image.
        mappings: From stored to delivered values, for people.
        is_cacheable: Whether size and times of local files tell of every
            change.
        newest: Newest time of a change of a file's content, in ns, and path.
    """

    stamps: int = 0
    mappings: frozenset[str] = frozenset()
    is_cacheable: bool = True
    newest: tuple[int, str] = (0, '')

    def __add__(self, other: 'Survey') -> 'Survey':
        return Survey(
            (self.stamps + other.stamps) % MODULUS,
            self.mappings | other.mappings,
            self.is_cacheable and other.is_cacheable,
            max(self.newest, other.newest),
        )


def survey(samples: Iterable[Sample]) -> Survey:
    """Look at every file of these samples from the outside."""
    return reduce(lambda total, x: total + _survey_one(x), samples, Survey())


def survey_on_all_ranks(samples: Samples) -> Survey:
    """The survey of all samples, each rank looking at its share."""
    rank, world_size = dist.get_dist_info()
    shares = dist.all_gather_object(survey(samples[rank::world_size]))
    return sum(shares, start=Survey())


def why_not_to_keep(before: Survey, after: Survey, started: int) -> str:
    """Why the next run could not tell whether the files are still these."""
    if after != before:
        return (
            'Labels or images were changed or removed while they were '
            'counted, so the counts may belong to no state of the data set '
            'and are not kept: start again when nothing writes there.'
        )
    changed, path = before.newest
    if changed > started - SAFE_AGE_NS:
        return (
            f'{path} was changed a moment ago, or its time lies in the '
            'future, so a further change might go unseen: the counts are '
            'not kept for the next run.'
        )
    return ''


def fingerprint(
    whole: Survey, classes: Sequence[str], labels: LabelRange
) -> str:
    """A hash of all that decides the statistics, file contents by stat."""
    return _hash(
        JSON_FORMAT,
        list(classes),
        labels.num_classes,
        labels.ignore_index,
        whole.stamps,
    ).hex()


def _survey_one(sample: Sample) -> Survey:
    loader, info = sample.loader, sample.info
    mapping, label = loader.describe(info), loader.label_file(info)
    files = [x for x in (label, loader.image_file(info)) if x is not None]
    stamps = [_stamp(os.path.abspath(x)) for x in files]
    name = '' if label is not None else sample.label_path
    digest = _hash(sample.position, mapping, name, *stamps)
    times = [(stamp[2], stamp[0]) for stamp in stamps if len(stamp) > 1]
    return Survey(
        int.from_bytes(digest, 'big'),
        frozenset([mapping]),
        label is not None,
        max(times, default=(0, '')),
    )


def _stamp(path: str) -> tuple:
    """Path, size, and times of change.

    Programs can set back the time of the content but not that of the inode.
    """
    try:
        stat = os.stat(path)
    except OSError:
        return (path,)
    return path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def _hash(*parts: object) -> bytes:
    return hashlib.sha256(json.dumps(parts).encode()).digest()
