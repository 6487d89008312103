"""What differs between the two stacks, and what is changed in them.

Importing this changes nothing. :func:`switch_on` does; the tools call it, and
configs for other tools import :mod:`mmseg_margin.safe_checkpoints`.
"""

from .corrections import switch_on
from .internals import (
    decode_into,
    draw_batches_from,
    go_on_with_trial,
    is_endless,
    loader_settings,
    log_on_screen,
    weight_cross_entropy,
)
from .loss_stage import (
    LossStage,
    has_stock_loss_stage,
    replace_loss_stage,
    restore_loss_stage,
)
from .presence import INSTALL_HINT, has_mmseg, quiet_import, require_mmseg

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
