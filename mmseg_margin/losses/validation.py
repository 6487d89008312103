"""What a loss must not be given."""

import logging
from collections.abc import Sequence

from mmengine.logging import print_log
from numpy.typing import NDArray

from mmseg_margin.errors import MarginError, SettingError
from mmseg_margin.functional import large_offset_warning


class NoStatisticsError(MarginError, RuntimeError):
    """A loss that needs the data set's counts was called without them."""

    def __init__(self, loss: str) -> None:
        super().__init__(
            f'{loss} has no label statistics yet: add '
            "custom_hooks=[dict(type='ClassStatsHook')] to the config, or "
            'give the loss class_counts=[...] or the JSON file of '
            'tools/class_stats.py.'
        )


def check_loss_name(loss_name: str) -> None:
    """Raise on a name that would take the loss out of the sum."""
    if 'loss' not in loss_name:
        raise SettingError(
            f'loss_name={loss_name!r} must contain "loss", or mmengine '
            'leaves the term out of the sum it minimises.'
        )


def warn_of_large_offsets(
    rho_0k: NDArray, classes: Sequence[str] | None
) -> None:
    """Say so if no score can overcome the offsets."""
    warning = large_offset_warning(rho_0k, classes)
    if warning:
        print_log(warning, logger='current', level=logging.WARNING)
