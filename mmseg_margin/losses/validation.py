"""What a loss must not be given."""

import logging
from collections.abc import Sequence

from mmengine.logging import print_log
from numpy.typing import NDArray

from mmseg_margin.errors import MarginError, SettingError
from mmseg_margin.terminal import printable

# Scores seldom differ by more; the paper's offsets on Cityscapes are below 1.
LARGE_OFFSET = 30.0


class NoStatisticsError(MarginError, RuntimeError):
    """A loss that needs the data set's counts was called without them."""

    def __init__(self, loss: str) -> None:
        super().__init__(
            f'{loss} has no label statistics yet: add '
            "custom_hooks=[dict(type='ClassStatsHook')] to the config, or "
            'give the loss class_counts=[...] or the JSON file of '
            'python -m mmseg_margin class_stats --out.'
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
    k = int(rho_0k.argmax())
    if rho_0k[k] <= LARGE_OFFSET:
        return
    name = str(k) if classes is None else f'{k} ({printable(classes[k])})'
    print_log(
        f'The margin-offset of class {name} is {rho_0k[k]:,.0f}, far beyond '
        'the scores of a network: the loss starts at about that and the other '
        'classes hardly count. The fewer pixels a data set has, the larger '
        'the offsets of the same tau; set largest_offset=0.4 in place of tau '
        '(--loss margin-paper:largest_offset=0.4).',
        logger='current',
        level=logging.WARNING,
    )
