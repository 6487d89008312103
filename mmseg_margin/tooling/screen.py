"""What the tools show; everything else is in the log file.

``--verbose`` shows all of it, as upstream's tools do.
"""

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mmengine.logging import MMLogger

from mmseg_margin.compat import log_on_screen

OURS = 'mmseg_margin'
TABLES = 'mmseg.evaluation'  # where upstream's metrics print their tables
LOGGING = ('logging', 'mmengine.logging', 'mmseg_margin.compat', __name__)
# Warnings of upstream that nobody can do anything about.
OF_NO_CONCERN = (
    'The prefix is not set in metric class',
    '"FileClient" will be deprecated',
    '"HardDiskBackend" is the alias of',
    'Dataset ',  # ... has no metainfo
    '`build_loss` would be deprecated',
)


class ScreenFilter:
    """Decides which log records are shown: warnings, ours, and tables."""

    tables = True
    """Whether the per-class tables of metrics are."""

    def __call__(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING:
            is_known = record.getMessage().startswith(OF_NO_CONCERN)
            return not (is_known or getattr(record, 'only_in_file', False))
        origin = _origin()
        is_table = origin.startswith(TABLES) and '+--' in record.getMessage()
        return origin.startswith(OURS) or (self.tables and is_table)


SCREEN = ScreenFilter()


class MessageAlone(logging.Formatter):
    """Without the line that upstream leaves free before a table."""

    def format(self, record: logging.LogRecord) -> str:
        return record.getMessage().lstrip('\n')


@contextmanager
def quiet_screen() -> Iterator[None]:
    """Show what a person needs, as long as this lasts."""
    show_warning = warnings.showwarning

    def log_warning(
        message: Any, category: Any, filename: str, *place: Any, **more: Any
    ) -> None:
        if 'site-packages' not in filename:
            show_warning(message, category, filename, *place, **more)
            return
        logger = MMLogger.get_current_instance()
        logger.warning(str(message), extra={'only_in_file': True})

    with log_on_screen(SCREEN, MessageAlone()), warnings.catch_warnings():
        warnings.showwarning = log_warning
        yield


def _origin() -> str:
    """The module that logs, whatever it calls for that."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals['__name__'].startswith(LOGGING):
        frame = frame.f_back
    return frame.f_globals['__name__']
