"""Arguments that the tools share; imports neither torch nor mmseg."""

import argparse
from collections.abc import Sequence
from typing import Any

from mmseg_margin.errors import did_you_mean

CONFIG_HELP = (
    'config file, or one of an installed package, such as '
    'mmseg::fcn/NAME.py or mmseg_margin::light/NAME.py'
)
# Repeated here, because the modules that define them import torch.
METRICS = ('tail', 'foreground', 'bound', 'cityscapes')
WEIGHT_METHODS = ('inverse', 'sqrt', 'median')
TTA_MODES = ('flip', 'ms-flip')
FIT_IMAGES = 300


class ConfigOptions(argparse.Action):
    """mmengine's ``DictAction``, which is imported where it is needed."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        from mmengine.config import DictAction

        DictAction(self.option_strings, self.dest)(*args, **kwargs)


def choice(choices: Sequence[str]) -> dict[str, Any]:
    """Type and metavar of an argument with few values, with a hint for typos.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> action = parser.add_argument('--tta', **choice(['flip']))
    """

    def check(value: str) -> str:
        if value not in choices:
            raise argparse.ArgumentTypeError(
                f'{value!r} is not one of {", ".join(choices)}.'
                f'{did_you_mean(value, choices)}'
            )
        return value

    return {'type': check, 'metavar': f'{{{",".join(choices)}}}'}


def add_config_options(parser: argparse.ArgumentParser) -> None:
    """Upstream's ``--cfg-options``, and ``--verbose``."""
    parser.add_argument(
        '--verbose', action='store_true', help='show the whole log'
    )
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        action=ConfigOptions,
        metavar='KEY=VALUE',
        help='settings of the config to override',
    )


def add_runner_arguments(parser: argparse.ArgumentParser) -> None:
    """Upstream's arguments that training and testing have in common."""
    parser.add_argument(
        '--work-dir', help='folder of logs, checkpoints and results'
    )
    add_config_options(parser)
    launchers = ('none', 'pytorch', 'slurm', 'mpi')
    parser.add_argument('--launcher', default='none', **choice(launchers))
    # torchrun passes the second spelling.
    parser.add_argument('--local_rank', '--local-rank', type=int, default=0)


def add_metrics_argument(parser: argparse.ArgumentParser) -> None:
    """``--metrics``, for training and testing."""
    parser.add_argument(
        '--metrics',
        nargs='+',
        default=[],
        help='measure more than the config does, and the IoU of every class: '
        'mIoU of frequent and rare classes; mIoU without the background; the '
        'IoU bound; the four scores of Cityscapes',
        **choice(METRICS),
    )
