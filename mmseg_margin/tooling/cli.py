"""Arguments that all tools share, and errors in one sentence."""

import argparse
import errno
import functools
import os
import sys
from collections.abc import Callable

from mmengine.config import DictAction

from mmseg_margin.compat import switch_on
from mmseg_margin.stats import DataSetError

# What bad input raises, here and in the libraries. Anything else is a defect
# and keeps its traceback.
EXPECTED_ERRORS = (DataSetError, ImportError, KeyError, OSError, ValueError)
# mmengine takes whatever interrupts its formatting of a config for the latter.
OF_A_DEAD_WORKER = (RuntimeError, SyntaxError)
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
TRACEBACK_VARIABLE = 'MMSEG_MARGIN_TRACEBACK'
LAUNCHERS = ('none', 'pytorch', 'slurm', 'mpi')


def add_runner_arguments(parser: argparse.ArgumentParser) -> None:
    """Upstream's arguments that training and testing have in common."""
    parser.add_argument(
        '--work-dir', help='folder of logs, checkpoints and results'
    )
    add_config_options(parser)
    parser.add_argument(
        '--launcher', choices=LAUNCHERS, default='none', help='job launcher'
    )
    # torchrun passes the second spelling.
    parser.add_argument('--local_rank', '--local-rank', type=int, default=0)


def add_config_options(parser: argparse.ArgumentParser) -> None:
    """Upstream's way to change settings of a config."""
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        action=DictAction,
        help='settings of the config to override, as key=value',
    )


def report_errors(main: Callable[..., None]) -> Callable[..., None]:
    """Turn an expected error into one sentence and the exit code 1."""

    @functools.wraps(main)
    def reporting_main(*args, **kwargs) -> None:
        switch_on()
        try:
            main(*args, **kwargs)
        except (*EXPECTED_ERRORS, *OF_A_DEAD_WORKER) as raised:
            dead_worker = _dead_worker(raised)
            error = dead_worker or raised
            is_expected = dead_worker or isinstance(raised, EXPECTED_ERRORS)
            if os.environ.get(TRACEBACK_VARIABLE) or not is_expected:
                raise
            print(f'error: {_describe(error)}', file=sys.stderr)
            print(
                f'({type(error).__name__}; set {TRACEBACK_VARIABLE}=1 to see '
                'where it comes from)',
                file=sys.stderr,
            )
            raise SystemExit(1) from None

    return reporting_main


def _dead_worker(error: BaseException | None) -> BaseException | None:
    """What torch raised, wherever the main thread was, if a worker died."""
    while error and not str(error).startswith('DataLoader worker'):
        error = error.__cause__ or error.__context__
    return error


def _describe(error: BaseException) -> str:
    if _dead_worker(error) is error:
        return (
            f'{str(error).rstrip(". ")}. Mostly it was killed because the '
            'memory was full: lower num_workers, prefetch_factor or '
            'batch_size of the data loader.'
        )
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        return (
            f'{error}: make room and start again, with --resume if it was a '
            'training. No earlier file was damaged.'
        )
    # str() of a KeyError is the repr of its message.
    if isinstance(error, KeyError) and error.args:
        return str(error.args[0])
    return str(error) or type(error).__name__
