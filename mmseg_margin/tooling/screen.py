"""What the tools show on the screen; the log file contains everything.

``--verbose`` shows the whole log, as upstream's tools do.
"""

import functools
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mmengine.logging import MMLogger

OURS = 'mmseg_margin'
# Modules whose metrics log a table per evaluation.
TABLES = ('mmseg.evaluation', 'mmseg_margin.evaluation')
LOGGING = ('logging', 'mmengine.logging', __name__)
# Warnings of upstream that users cannot act on.
IGNORED_WARNINGS = (
    'The prefix is not set in metric class',
    '"FileClient" will be deprecated',
    '"HardDiskBackend" is the alias of',
    'Dataset ',  # ... has no metainfo
    '`build_loss` would be deprecated',
)


class ScreenFilter:
    """Shows warnings, messages of this package and tables of metrics."""

    tables = True
    """Whether tables of metrics are shown."""

    def __call__(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING:
            is_ignored = record.getMessage().startswith(IGNORED_WARNINGS)
            return not (is_ignored or getattr(record, 'only_in_file', False))
        origin = _origin()
        is_ours = origin.startswith(OURS)
        if origin.startswith(TABLES):
            return self.tables and (is_ours or '+--' in record.getMessage())
        return is_ours


SCREEN = ScreenFilter()


class MessageOnly(logging.Formatter):
    """Drops time and level, and the empty line before upstream's tables."""

    def format(self, record: logging.LogRecord) -> str:
        return record.getMessage().lstrip('\n')


@contextmanager
def quiet_screen() -> Iterator[None]:
    """Shows warnings, our own messages and metric tables only.

    A Runner creates its logger and logs hundreds of lines before it returns,
    so every logger that mmengine creates inside gets the filter at once.
    """
    show_warning, init = warnings.showwarning, MMLogger.__init__

    def log_warning(
        message: Any, category: Any, filename: str, *place: Any, **more: Any
    ) -> None:
        if 'site-packages' not in filename:
            show_warning(message, category, filename, *place, **more)
            return
        logger = MMLogger.get_current_instance()
        logger.warning(str(message), extra={'only_in_file': True})

    @functools.wraps(init)
    def filtered_init(self: MMLogger, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        for handler in self.handlers:
            if not isinstance(handler, logging.FileHandler):
                handler.addFilter(SCREEN)
                handler.setFormatter(MessageOnly())

    MMLogger.__init__ = filtered_init
    try:
        with warnings.catch_warnings():
            warnings.showwarning = log_warning
            yield
    finally:
        MMLogger.__init__ = init


def _origin() -> str:
    """The module that logs, skipping the frames of the logging modules."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals['__name__'].startswith(LOGGING):
        frame = frame.f_back
    return frame.f_globals['__name__']
