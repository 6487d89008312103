"""Statistics of earlier scans on disk, found by what was scanned.

A file is complete or not there: it is written under another name, then
renamed. So runs may share a folder and may be killed at any moment.
"""

import logging
import os
import time
from pathlib import Path

from mmengine.logging import print_log

from mmseg_margin.atomic_write import atomic_write_text

from .class_stats import ClassStats

ABANDONED_AFTER_SECONDS = 3600


def default_cache_dir() -> Path:
    """The user's cache folder, shared by all projects and runs."""
    base = os.environ.get('XDG_CACHE_HOME') or '~/.cache'
    return Path(base, 'mmseg_margin', 'class_stats')


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
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            reason = str(error).rstrip('.')
            _say(f'{reason}: scanning again instead of using it.')
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
        try:
            if self.folder.parts[0].startswith('~'):
                raise OSError('the user has no home folder, set cache_dir')
            self.folder.mkdir(parents=True, exist_ok=True)
            self._remove_abandoned_drafts()
            key = stats.provenance.fingerprint
            atomic_write_text(self.folder / f'{key}.json', stats.dumps())
        except OSError as error:
            _say(
                f'The label statistics are not kept in {self.folder}, so the '
                f'next run counts again: {error}.'
            )

    def _remove_abandoned_drafts(self) -> None:
        oldest = time.time() - ABANDONED_AFTER_SECONDS
        for draft in self.folder.glob('*.tmp'):
            try:
                if draft.stat().st_mtime < oldest:
                    draft.unlink()
            except OSError:
                continue  # of another user, or another run was faster


def _say(message: str) -> None:
    print_log(message, logger='current', level=logging.WARNING)
