"""Earlier statistics: in a folder, or in a checkpoint."""

import json
import logging
import os
from pathlib import Path
from typing import Any

from .class_stats import ClassStats

logger = logging.getLogger('mmseg_margin')

META_KEY = 'class_stats'  # in the checkpoint


class StatsCache:
    """A folder of ``<fingerprint>.json``; never a reason to fail.

    What cannot be read is counted again, what cannot be written is not kept.

    Args:
        folder: None for ``~/.cache/mmseg_margin/class_stats``.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        if not folder:
            base = os.environ.get('XDG_CACHE_HOME') or '~/.cache'
            folder = Path(base, 'mmseg_margin', 'class_stats')
        self.folder = Path(os.path.expanduser(folder))

    def path_of(self, key: str) -> Path:
        return self.folder / f'{key}.json'

    def load(self, key: str) -> ClassStats | None:
        """The statistics of a fingerprint, if they exist and are intact."""
        path = self.path_of(key)
        try:
            stats = ClassStats.from_dict(json.loads(path.read_text('utf-8')))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, RecursionError) as error:
            logger.warning(
                f'{path} is not used, the labels are counted: {error}'
            )
            return None
        return stats if stats.fingerprint == key else None

    def store(self, stats: ClassStats) -> None:
        """Write atomically, under the fingerprint of the statistics."""
        try:
            if self.folder.parts[0].startswith('~'):
                raise OSError('there is no home folder, set cache_dir')
            self.folder.mkdir(parents=True, exist_ok=True)
            stats.to_json(self.path_of(stats.fingerprint))
        except OSError as error:
            logger.warning(
                f'The label statistics are not kept in {self.folder}, so the '
                f'next run counts again: {error}.'
            )


def stats_of_checkpoint(meta: dict[str, Any]) -> ClassStats | None:
    """The statistics that ``ClassStatsHook`` saved, unless damaged."""
    if META_KEY not in meta:
        return None
    try:
        return ClassStats.from_dict(meta[META_KEY])
    except ValueError as error:
        logger.warning(f'The checkpoint has no usable statistics: {error}')
        return None
