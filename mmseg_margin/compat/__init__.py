"""What differs between the two stacks, and what is changed in them.

Importing this changes nothing. :func:`switch_on` does; the tools call it, and
configs for other tools import :mod:`mmseg_margin.safe_checkpoints`.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from io import StringIO

from .corrections import switch_on
from .internals import (
    LossStage,
    decode_into,
    draw_batches_from,
    go_on_with_trial,
    has_stock_loss_stage,
    is_endless,
    loader_settings,
    log_on_screen,
    replace_loss_stage,
    restore_loss_stage,
    weight_cross_entropy,
)

__all__ = [
    'INSTALL_HINT',
    'LossStage',
    'decode_into',
    'draw_batches_from',
    'go_on_with_trial',
    'has_mmseg',
    'has_stock_loss_stage',
    'is_endless',
    'loader_settings',
    'log_on_screen',
    'quiet_import',
    'replace_loss_stage',
    'require_mmseg',
    'restore_loss_stage',
    'switch_on',
    'weight_cross_entropy',
]

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
