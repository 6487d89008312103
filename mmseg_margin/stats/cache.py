"""Earlier statistics: in a folder or in a checkpoint, and when to trust them.

The name of a file is the fingerprint of what was scanned. A file is written
under another name, then renamed, so it is complete or absent: several runs may
share a folder and may be killed at any moment. Other users may be able to
write to the folder: only regular files are read, links are not followed, and
nothing is removed but our own drafts.
"""

import hashlib
import logging
import os
import re
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from mmengine.logging import print_log

from mmseg_margin.atomic_write import atomic_replace
from mmseg_margin.terminal import printable

from .class_stats import LONGEST_TEXT, ClassStats

META_KEY = 'class_stats'  # in the checkpoint
VALIDATION_KEY = 'validation_class_stats'
ABANDONED_AFTER_SECONDS = 3600
# Two changes of a file within the resolution of its time look like one; the
# coarsest file systems have a resolution of two seconds.
SAFE_AGE_NS = 2 * 10**9
DRAFT = re.compile(r'\.[0-9a-f]{64}\.stats\.[0-9a-f]{32}\.tmp')
NO_LINKS = getattr(os, 'O_NOFOLLOW', 0)
NO_BLOCKING = getattr(os, 'O_NONBLOCK', 0)  # on a pipe without a writer


class StatsCache:
    """A folder of ``<fingerprint>.stats``; never a reason to fail.

    Each file begins with the checksum of the rest, which is JSON.

    Args:
        folder: A folder that several users may share. None: the user's own
            cache folder, to which nobody else gets access.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.is_private = not folder
        if not folder:
            base = os.environ.get('XDG_CACHE_HOME') or '~/.cache'
            folder = Path(base, 'mmseg_margin', 'class_stats')
        self.folder = Path(os.path.expanduser(folder))

    def path_of(self, key: str) -> Path:
        return self.folder / f'{key}.stats'

    def load(self, key: str) -> ClassStats | None:
        """The statistics of a fingerprint, if they exist and are intact."""
        path = self.path_of(key)
        try:
            checksum, _, content = self._read(path).partition(b'\n')
            if checksum != _checksum(content):
                raise ValueError('its checksum is wrong.')
            stats = ClassStats.loads(content.decode())
            if stats.provenance.fingerprint != key:
                raise ValueError('it belongs to other files or classes.')
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            reason = printable(str(error)).rstrip('.')
            _warn(f'{path}: {reason}: the labels are counted again.')
            return None
        return stats

    def store(self, stats: ClassStats) -> None:
        """Write atomically, under the fingerprint of the statistics."""
        content, key = stats.dumps().encode(), stats.provenance.fingerprint
        try:
            self._prepare_folder()
            with atomic_replace(self.path_of(key)) as draft:
                draft.write_bytes(_checksum(content) + b'\n' + content)
        except OSError as error:
            _warn(
                f'The label statistics are not kept in {self.folder}, so the '
                f'next run counts again: {error}.'
            )

    def _read(self, path: Path) -> bytes:
        number = os.open(path, os.O_RDONLY | NO_LINKS | NO_BLOCKING)
        with open(number, 'rb') as file:
            status = os.fstat(number)
            if not stat.S_ISREG(status.st_mode):
                raise OSError('it is not a regular file')
            if self.is_private and not _is_mine(status):
                raise OSError('it belongs to another user')
            return file.read(LONGEST_TEXT)

    def _prepare_folder(self) -> None:
        """Create it, close it to others, and remove our abandoned drafts."""
        folder = self.folder
        if folder.parts[0].startswith('~'):
            raise OSError('the user has no home folder, set cache_dir')
        folder.mkdir(0o700 if self.is_private else 0o777, True, True)
        # Behind a link, the folder may be one that the user shares.
        is_linked = folder.is_symlink() or folder.parent.is_symlink()
        if self.is_private and not is_linked:
            folder.chmod(0o700)
        oldest = time.time() - ABANDONED_AFTER_SECONDS
        for draft in folder.glob('.*.tmp'):
            with suppress(OSError):  # another run has removed it already
                status = draft.lstat()
                is_old = status.st_mtime < oldest and _is_mine(status)
                if is_old and DRAFT.fullmatch(draft.name):
                    draft.unlink()


def stats_of_checkpoint(
    meta: dict[str, Any], key: str = META_KEY
) -> ClassStats | None:
    """The statistics that ``ClassStatsHook`` saved, unless damaged."""
    if key not in meta:
        return None
    try:
        return ClassStats.from_dict(meta[key])
    except ValueError as error:
        _warn(f'The label statistics of the checkpoint are not used: {error}')
        return None


def can_be_kept(
    is_changed: bool, started: int, changed: int, path: str
) -> bool:
    """Whether counts may serve a later run; a warning if not.

    Args:
        is_changed: Whether files were changed during the scan.
        started: When the scan began, in ns.
        changed, path: The latest change before the scan, in ns, and its file.
    """
    warning = ''
    if is_changed:
        warning = (
            'Labels or images were changed or removed while they were '
            'counted, so the counts may belong to no state of the data set '
            'and are not kept: start again when nothing writes there.'
        )
    elif changed > started - SAFE_AGE_NS:
        warning = (
            f'{printable(path)} was changed a moment ago, or its time lies '
            'in the future, so a further change might go unseen: the counts '
            'are not kept for the next run.'
        )
    if warning:
        _warn(warning)
    return not warning


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _is_mine(status: os.stat_result) -> bool:
    return not hasattr(os, 'geteuid') or status.st_uid == os.geteuid()


def _warn(message: str) -> None:
    print_log(message, logger='current', level=logging.WARNING)
