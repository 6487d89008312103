"""Arguments that tools share, and errors as one sentence."""

import argparse
import errno
import functools
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import pairwise

from mmengine.config import DictAction

from mmseg_margin.compat import apply_patches
from mmseg_margin.errors import MarginError

from .flags import METRIC_CHOICES
from .progress import quiet_screen

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
TRACEBACK_VARIABLE = 'MMSEG_MARGIN_TRACEBACK'
# How torch's message about a killed worker begins.
LOST_WORKER = 'DataLoader worker'
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


def add_metrics_argument(parser: argparse.ArgumentParser) -> None:
    """``--metrics``, for training and testing."""
    parser.add_argument(
        '--metrics',
        nargs='+',
        default=[],
        choices=METRIC_CHOICES,
        help='measure more than the config does, and the IoU of every class: '
        'mIoU of frequent and rare classes; mIoU without the background; the '
        'IoU bound; the four scores of Cityscapes',
    )


def add_config_options(parser: argparse.ArgumentParser) -> None:
    """Upstream's ``--cfg-options``, and ``--verbose``."""
    parser.add_argument(
        '--verbose', action='store_true', help='show the whole log'
    )
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        action=DictAction,
        help='settings of the config to override, as key=value',
    )


def tool(main: Callable[..., None]) -> Callable[..., None]:
    """Decorator for the main function of a tool.

    It applies the patches, filters the screen (unless ``--verbose`` is given)
    and reports user errors as one sentence.
    """

    @functools.wraps(main)
    def shown_main(argv: Sequence[str] | None = None) -> None:
        is_verbose = '--verbose' in (sys.argv if argv is None else argv)
        with nullcontext() if is_verbose else quiet_screen():
            main(argv)

    return report_errors(shown_main)


def report_errors(main: Callable[..., None]) -> Callable[..., None]:
    """Decorator: user errors are one sentence and exit code 1.

    Other errors, except the accidents in :func:`_sentence`, are defects or
    come from the user's code, and keep their traceback.
    """

    @functools.wraps(main)
    def reporting_main(*args, **kwargs) -> None:
        apply_patches()
        try:
            main(*args, **kwargs)
        except (Exception, KeyboardInterrupt) as error:
            sentence = _sentence(error)
            if sentence is None or os.environ.get(TRACEBACK_VARIABLE):
                raise
            if any(map(_is_lost_worker, _causes(error))):
                # When memory is short further workers die, and torch's
                # handler would raise that while this process ends.
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            print(
                f'error: {sentence}\n'
                f'(set {TRACEBACK_VARIABLE}=1 to see the traceback)',
                file=sys.stderr,
            )
            raise SystemExit(1) from None

    return reporting_main


def _sentence(error: BaseException) -> str | None:
    """The message that replaces the traceback, if there is one."""
    if isinstance(error, MarginError):
        # torch prepends the traceback of a data loading worker.
        kind = f'{type(error).__module__}.{type(error).__name__}: '
        return str(error).rpartition(kind)[2].rstrip()
    for each in _causes(error):
        if isinstance(each, KeyboardInterrupt):
            return (
                'stopped by Ctrl-C. Run the same command to continue; a '
                'training with --resume.'
            )
        if _is_lost_worker(each):
            what = str(each).rstrip('. ')
            if not what.startswith(LOST_WORKER):
                what = f'{LOST_WORKER} ended before it had sent its batch'
            return (
                f'{what}. Usually the system killed it for lack of memory: '
                'lower num_workers, prefetch_factor or batch_size of the data '
                'loader.'
            )
        if isinstance(each, OSError) and each.errno in DISK_FULL:
            return (
                f'{each}: free some space and run the command again, a '
                'training with --resume. No earlier file was damaged.'
            )
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those that led to it.

    mmengine reports an interruption while it formats a config as an error of
    the config.
    """
    while error:
        yield error
        error = error.__cause__ or error.__context__


def _is_lost_worker(error: BaseException) -> bool:
    """Whether a data loading worker has been killed.

    torch says so, unless the loader was just reading from the worker: then
    the connection may break first.
    """
    if str(error).startswith(LOST_WORKER):
        return True
    if not isinstance(error, (ConnectionError, EOFError)):
        return False
    frames = traceback.walk_tb(error.__traceback__)
    modules = [frame.f_globals.get('__name__', '') for frame, _ in frames]
    return any(
        caller.startswith('torch.utils.data')
        and called.startswith('multiprocessing')
        for caller, called in pairwise(modules)
    )
