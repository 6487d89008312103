"""Whether a stack is installed, and its import without its chatter."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from io import StringIO

INSTALL_HINT = (
    'MMSegmentation is not installed: '
    "run pip install 'mmseg_margin[onedl]' (maintained forks) "
    "or pip install 'mmseg_margin[openmmlab]' (upstream)."
)


def has_mmseg() -> bool:
    """Whether a stack is installed, without importing it."""
    return find_spec('mmseg') is not None


def require_mmseg() -> None:
    """Stop the program with a sentence if no stack is installed."""
    if not has_mmseg():
        raise SystemExit(f'error: {INSTALL_HINT}')


@contextmanager
def quiet_import() -> Iterator[None]:
    """Leave out what the forks print, and mmcv warns of, on every import."""
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', '.*MultiScaleDeformableAttention')
        with redirect_stdout(StringIO()) as printed:
            yield
    for line in printed.getvalue().splitlines():
        if line != 'Could not import OneDL':
            print(line)
