"""Arguments that all tools share, and errors in one sentence."""

import argparse
import functools
import os
import sys
from collections.abc import Callable

from mmengine.config import DictAction

from mmseg_margin.stats import DataSetError

# What bad input raises, here and in the libraries. Anything else is a defect
# and keeps its traceback.
EXPECTED_ERRORS = (DataSetError, ImportError, KeyError, OSError, ValueError)
TRACEBACK_VARIABLE = 'MMSEG_MARGIN_TRACEBACK'
LAUNCHERS = ('none', 'pytorch', 'slurm', 'mpi')


def add_runner_arguments(parser: argparse.ArgumentParser) -> None:
    """Upstream's arguments that training and testing have in common."""
    parser.add_argument(
        '--work-dir', help='folder of logs, checkpoints and results'
    )
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        action=DictAction,
        help='settings of the config to override, as key=value',
    )
    parser.add_argument(
        '--launcher', choices=LAUNCHERS, default='none', help='job launcher'
    )
    # torchrun passes the second spelling.
    parser.add_argument('--local_rank', '--local-rank', type=int, default=0)


def report_errors(main: Callable[..., None]) -> Callable[..., None]:
    """Turn an expected error into one sentence and the exit code 1."""

    @functools.wraps(main)
    def reporting_main(*args, **kwargs) -> None:
        try:
            main(*args, **kwargs)
        except EXPECTED_ERRORS as error:
            if os.environ.get(TRACEBACK_VARIABLE):
                raise
            print(f'error: {_describe(error)}', file=sys.stderr)
            print(
                f'({type(error).__name__}; set {TRACEBACK_VARIABLE}=1 to see '
                'where it comes from)',
                file=sys.stderr,
            )
            raise SystemExit(1) from None

    return reporting_main


def _describe(error: BaseException) -> str:
    # str() of a KeyError is the repr of its message.
    if isinstance(error, KeyError) and error.args:
        return str(error.args[0])
    return str(error) or type(error).__name__
