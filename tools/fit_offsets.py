"""Fit class offsets to a trained network: more mIoU without training."""

import argparse
from pathlib import Path

from mmseg_margin.tooling import flags
from mmseg_margin.tooling.cli import report_errors


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('config', help=flags.CONFIG_HELP)
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument(
        '--images',
        type=int,
        default=flags.FIT_IMAGES,
        metavar='N',
        help=f'fit on at most N training images ({flags.FIT_IMAGES})',
    )
    parser.add_argument(
        '--out',
        type=Path,
        metavar='FILE.pth',
        help='the new checkpoint (default: CHECKPOINT with _offsets)',
    )
    parser.add_argument(
        '--force',
        action='store_true',
        help='write it even if nothing is gained, and over existing files',
    )
    flags.add_runner_arguments(parser)
    return parser.parse_args(argv)


@report_errors
def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    import mmseg_margin.registration  # noqa: F401  (first, and quietly)
    from mmseg_margin.offsets.checkpoint import fit_checkpoint
    from mmseg_margin.offsets.fit_runner import check_config
    from mmseg_margin.tooling import launch

    cfg = launch.open_config(args)
    check_config(cfg)
    cfg.log_level = 'INFO'  # the result is a part of the log
    launch.check_folders(cfg, ('train', 'val'))
    launch.prepare_for_device(cfg)
    runner = launch.build_runner(cfg, args.verbose)
    fit_checkpoint(runner, args.checkpoint, args.out, args.images, args.force)


if __name__ == '__main__':
    main()
