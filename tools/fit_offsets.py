"""Fit class offsets to a trained network: more mIoU without training."""

import argparse
from pathlib import Path

import mmseg_margin.tooling  # noqa: F401  (first: says if mmseg is missing)
from mmseg_margin.tooling.cli import add_runner_arguments, tool


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument('config', help='config file')
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument(
        '--split',
        choices=('train', 'val'),
        default='train',
        help='the images to fit on',
    )
    parser.add_argument(
        '--images',
        type=int,
        default=300,
        metavar='N',
        help='fit on at most N images',
    )
    parser.add_argument(
        '--metric',
        choices=('mIoU', 'mDice'),
        default='mIoU',
        help='what to raise',
    )
    parser.add_argument(
        '--out',
        type=Path,
        metavar='FILE.pth',
        help='the new checkpoint, by default CHECKPOINT with _offsets.pth',
    )
    parser.add_argument(
        '--force',
        action='store_true',
        help='write it even if nothing is gained, and over existing files',
    )
    add_runner_arguments(parser)
    return parser.parse_args(argv)


@tool
def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    # After the arguments, because torch and mmseg take seconds to import.
    from mmseg_margin.offsets import FitSettings, fit_checkpoint
    from mmseg_margin.tooling import launch

    settings = FitSettings(args.split, args.images, args.metric)
    cfg = launch.open_config(args)
    cfg.log_level = 'INFO'  # the result is a part of the log
    launch.check_folders(cfg, (args.split, 'val'))
    launch.prepare_for_device(cfg)
    runner = launch.build_runner(cfg)
    fit_checkpoint(runner, args.checkpoint, args.out, settings, args.force)


if __name__ == '__main__':
    main()
