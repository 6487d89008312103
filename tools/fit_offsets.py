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
        '--split',
        default='train',
        help='the images to fit on (default: train)',
        **flags.choice(flags.FIT_SPLITS),
    )
    parser.add_argument(
        '--images',
        type=int,
        default=flags.FIT_IMAGES,
        metavar='N',
        help=f'fit on at most N images (default: {flags.FIT_IMAGES})',
    )
    parser.add_argument(
        '--metric',
        default='mIoU',
        help='what to raise (default: mIoU)',
        **flags.choice(flags.FIT_METRICS),
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
    from mmseg_margin.offsets import FitSettings, fit_checkpoint
    from mmseg_margin.tooling import launch

    settings = FitSettings(args.split, args.images, args.metric)
    cfg = launch.open_config(args)
    settings.check_config(cfg)
    cfg.log_level = 'INFO'  # the result is a part of the log
    launch.check_folders(cfg, (args.split, 'val'))
    launch.prepare_for_device(cfg)
    runner = launch.build_runner(cfg, args.verbose)
    fit_checkpoint(runner, args.checkpoint, args.out, settings, args.force)


if __name__ == '__main__':
    main()
