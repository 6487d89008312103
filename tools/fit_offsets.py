"""Fit class offsets to a trained network: more mIoU without training."""

import argparse
import os
from pathlib import Path

import mmseg_margin.tooling  # noqa: F401  (first: says if mmseg is missing)
from mmseg_margin.errors import SettingError
from mmseg_margin.offsets.checkpoint import (
    SUFFIX,
    default_target,
    fit_checkpoint,
)
from mmseg_margin.offsets.fit import METRICS
from mmseg_margin.offsets.fit_runner import NUM_IMAGES, SPLITS, check_settings
from mmseg_margin.tooling.cli import add_runner_arguments, tool
from mmseg_margin.tooling.launch import (
    build_runner,
    check_folders,
    open_config,
    prepare_for_device,
)
from mmseg_margin.tooling.ranks import watch_ranks


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('config', help='config file')
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument(
        '--split',
        choices=SPLITS,
        default='train',
        help='the images to fit on (default: train)',
    )
    parser.add_argument(
        '--images',
        type=int,
        default=NUM_IMAGES,
        metavar='N',
        help=f'fit on at most N images (default: {NUM_IMAGES})',
    )
    parser.add_argument(
        '--metric',
        choices=METRICS,
        default='mIoU',
        help='what to raise (default: mIoU)',
    )
    parser.add_argument(
        '--out',
        type=Path,
        metavar='FILE',
        help=f'the new checkpoint (default: CHECKPOINT with {SUFFIX})',
    )
    parser.add_argument(
        '--force',
        action='store_true',
        help='write it even if nothing is gained',
    )
    add_runner_arguments(parser)
    return parser.parse_args(argv)


@tool
def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    cfg = open_config(args)
    cfg.log_level = 'INFO'  # the result is a part of the log
    check_settings(cfg, args.split, args.images, args.metric)
    target = args.out or default_target(args.checkpoint, cfg.work_dir)
    if os.path.realpath(target) == os.path.realpath(args.checkpoint):
        raise SettingError(
            f'--out {target} is the original checkpoint, which is kept: '
            'choose another file.'
        )
    folder = next(each for each in target.absolute().parents if each.exists())
    if target.is_dir() or not os.access(folder, os.W_OK):
        raise SettingError(
            f'{target} cannot be written: choose another file with --out.'
        )
    check_folders(cfg, (args.split, 'val'))
    prepare_for_device(cfg)
    runner = build_runner(cfg)
    with watch_ranks():
        fit_checkpoint(
            runner,
            args.checkpoint,
            target,
            args.split,
            args.images,
            args.metric,
            args.force,
        )


if __name__ == '__main__':
    main()
