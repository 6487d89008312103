"""Errors of the tools as one sentence; imports neither torch nor mmseg."""

import functools
import sys
from collections.abc import Callable
from typing import Any

from mmseg_margin.compat import INSTALL_HINT, has_mmseg
from mmseg_margin.errors import MarginError

INTERRUPTED = 130  # the exit code of a shell's command after Ctrl-C


def report_errors(main: Callable[..., None]) -> Callable[..., None]:
    """Decorator: user errors and Ctrl-C are one sentence and an exit code.

    Other errors are defects or come from the user's code, and keep their
    traceback.
    """

    @functools.wraps(main)
    def reporting_main(*args: Any, **kwargs: Any) -> None:
        try:
            main(*args, **kwargs)
        except MarginError as error:
            # torch prepends the traceback of a data loading worker.
            kind = f'{type(error).__module__}.{type(error).__name__}: '
            _exit(1, f'error: {str(error).rpartition(kind)[2].rstrip()}')
        except ImportError:
            if has_mmseg():
                raise
            _exit(1, f'error: {INSTALL_HINT}')
        except KeyboardInterrupt as error:
            _exit(INTERRUPTED, str(error) or 'Stopped by Ctrl-C.')
        except SyntaxError as error:
            # mmengine's message if Ctrl-C stops it while it formats a config.
            if not isinstance(error.__context__, KeyboardInterrupt):
                raise
            _exit(INTERRUPTED, 'Stopped by Ctrl-C.')

    return reporting_main


def _exit(code: int, sentence: str) -> None:
    print(sentence, file=sys.stderr)
    raise SystemExit(code) from None
