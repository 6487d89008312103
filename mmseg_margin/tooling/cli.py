"""Arguments that all tools share, and errors in one sentence."""

import argparse
import errno
import functools
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from mmengine.config import DictAction

from mmseg_margin.compat import apply_patches
from mmseg_margin.errors import MarginError

from .screen import quiet_screen

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
    """Upstream's way to change settings of a config, and ``--verbose``."""
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
    """Makes a function of the command line a tool: all have this in common.

    It corrects the stack, shows on the screen what matters (or everything,
    with ``--verbose``), and ends mistakes in a sentence.
    """

    @functools.wraps(main)
    def shown_main(argv: Sequence[str] | None = None) -> None:
        is_verbose = '--verbose' in (sys.argv if argv is None else argv)
        with nullcontext() if is_verbose else quiet_screen():
            main(argv)

    return report_errors(shown_main)


def report_errors(main: Callable[..., None]) -> Callable[..., None]:
    """Let mistakes end in one sentence.

    What is not a :class:`MarginError`, nor one of the accidents below, comes
    out of somebody's code and keeps its traceback.
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
            print(f'error: {sentence}', file=sys.stderr)
            print(
                f'(set {TRACEBACK_VARIABLE}=1 to see where it comes from)',
                file=sys.stderr,
            )
            raise SystemExit(1) from None

    return reporting_main


def _sentence(error: BaseException) -> str | None:
    """What to say instead of the traceback, if that is enough."""
    if isinstance(error, MarginError):
        # In a worker of a data loader torch puts a traceback before it.
        kind = f'{type(error).__module__}.{type(error).__name__}: '
        return str(error).rpartition(kind)[2].rstrip()
    # mmengine takes whatever interrupts its formatting of a config for a
    # mistake in the config, so the causes count as well.
    each: BaseException | None = error
    while each:
        if isinstance(each, KeyboardInterrupt):
            return (
                'stopped by Ctrl-C. The same command goes on with what is '
                'done; a training with --resume.'
            )
        if str(each).startswith('DataLoader worker'):
            return (
                f'{str(each).rstrip(". ")}. Mostly it was killed because the '
                'memory was full: lower num_workers, prefetch_factor or '
                'batch_size of the data loader.'
            )
        if isinstance(each, OSError) and each.errno in DISK_FULL:
            return (
                f'{each}: make room and start again, with --resume if it was '
                'a training. No earlier file was damaged or removed.'
            )
        each = each.__cause__ or each.__context__
    return None
