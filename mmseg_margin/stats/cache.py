"""Statistics of earlier scans on disk, found by what was scanned.

A file is complete or not there: it is written under another name, then
renamed. So runs may share a folder and may be killed at any moment.
"""

import hashlib
import json
import logging
import os
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from mmengine.logging import print_log

from .class_stats import JSON_FORMAT, ClassStats
from .samples import Sample
from .tally import LabelRange

ABANDONED_AFTER_SECONDS = 3600


def default_cache_dir() -> Path:
    """The user's cache folder, shared by all projects and runs."""
    base = os.environ.get('XDG_CACHE_HOME') or '~/.cache'
    return Path(base, 'mmseg_margin', 'class_stats')


def is_cacheable(samples: Sequence[Sample]) -> bool:
    """Whether size and time of local files tell of every change."""
    return all(x.loader.label_file(x.info) is not None for x in samples)


def fingerprint(
    samples: Sequence[Sample], classes: Sequence[str], labels: LabelRange
) -> str:
    """A hash of all that decides the statistics, file contents by stat."""
    digest = hashlib.sha256()

    def update(*parts: object) -> None:
        digest.update(json.dumps(parts).encode())

    update(JSON_FORMAT, list(classes), labels.num_classes, labels.ignore_index)
    for sample in samples:
        loader, info = sample.loader, sample.info
        update(
            loader.describe(info),
            _stamp(loader.label_file(info)) or sample.label_path,
            _stamp(loader.image_file(info)),
        )
    return digest.hexdigest()


class StatsCache:
    """A folder of ``<fingerprint>.json``; never a reason to fail."""

    def __init__(self, folder: str | Path | None = None) -> None:
        chosen = folder or default_cache_dir()
        self.folder = Path(os.path.expanduser(chosen))

    def load(self, key: str) -> ClassStats | None:
        """The statistics of that fingerprint, if they are there and whole."""
        path = self.folder / f'{key}.json'
        try:
            stats = ClassStats.from_json(path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _say(f'{error} Scanning again instead of using it.')
            return None
        if stats.provenance.fingerprint != key:
            _say(
                f'{path} belongs to other files or another label mapping: '
                'scanning again instead of using it.'
            )
            return None
        return stats

    def store(self, stats: ClassStats) -> None:
        """Write under the statistics' fingerprint, whole or not at all."""
        key = stats.provenance.fingerprint
        draft = self.folder / f'{key}.{uuid.uuid4().hex}.tmp'
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._remove_abandoned_drafts()
            with draft.open('x', encoding='utf-8') as file:
                file.write(stats.dumps())
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.folder / f'{key}.json')
        except OSError as error:
            _say(f'The label statistics are not cached: {error}.')

    def _remove_abandoned_drafts(self) -> None:
        oldest = time.time() - ABANDONED_AFTER_SECONDS
        for draft in self.folder.glob('*.tmp'):
            try:
                if draft.stat().st_mtime < oldest:
                    draft.unlink()
            except FileNotFoundError:
                continue  # another run was faster


def _stamp(path: str | None) -> tuple[str, int, int] | str | None:
    if path is None:
        return None
    absolute = os.path.abspath(path)
    try:
        stat = os.stat(absolute)
    except OSError:
        return absolute
    return absolute, stat.st_size, stat.st_mtime_ns


def _say(message: str) -> None:
    print_log(message, logger='current', level=logging.WARNING)
