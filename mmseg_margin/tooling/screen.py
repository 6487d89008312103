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


class Screen:
    """Decides which log records are shown."""

    tables = True
    """Whether the per-class tables of metrics are."""

    def __call__(self, record: logging.LogRecord) -> bool:
        """Whether it is a warning, of ours, or a table."""
        if record.levelno >= logging.WARNING:
            is_known = record.getMessage().startswith(OF_NO_CONCERN)
            return not (is_known or getattr(record, 'only_in_file', False))
        origin = _origin()
        is_table = origin.startswith(TABLES) and '+--' in record.getMessage()
        return origin.startswith(OURS) or (self.tables and is_table)


SCREEN = Screen()


class Plain(logging.Formatter):
    """The message alone."""

    def format(self, record: logging.LogRecord) -> str:
        """Without the line that upstream leaves free before a table."""
        return record.getMessage().lstrip('\n')


@contextmanager
def only_what_matters() -> Iterator[None]:
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

    with log_on_screen(SCREEN, Plain()):
        warnings.showwarning = log_warning
        try:
            yield
        finally:
            warnings.showwarning = show_warning


def _origin() -> str:
    """The module that logs, whatever it calls for that."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals['__name__'].startswith(LOGGING):
        frame = frame.f_back
    return frame.f_globals['__name__']
