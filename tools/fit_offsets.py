"""Fit class offsets to a trained network: more mIoU without training."""

import argparse
import os
from pathlib import Path

from mmseg_margin.errors import SettingError
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
        metavar='FILE',
        help='the new checkpoint (default: CHECKPOINT with _offsets)',
    )
    parser.add_argument(
        '--force',
        action='store_true',
        help='write it even if nothing is gained',
    )
    flags.add_runner_arguments(parser)
    return parser.parse_args(argv)


@report_errors
def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    import mmseg_margin.registration  # noqa: F401  (first, and quietly)
    from mmseg_margin.offsets.checkpoint import default_target, fit_checkpoint
    from mmseg_margin.offsets.fit_runner import check_settings
    from mmseg_margin.tooling import launch

    cfg = launch.open_config(args)
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
    launch.check_folders(cfg, (args.split, 'val'))
    launch.prepare_for_device(cfg)
    fit_checkpoint(
        launch.build_runner(cfg, args.verbose),
        args.checkpoint,
        target,
        args.split,
        args.images,
        args.metric,
        args.force,
    )


if __name__ == '__main__':
    main()
