"""Test a checkpoint, or make a submission for a data set's server."""

import argparse
import os

import mmseg_margin.tooling  # noqa: F401  (first: says if mmseg is missing)
from mmseg_margin.config_tools import add_hook
from mmseg_margin.evaluation.tta import MODES, use_tta
from mmseg_margin.tooling import cli, flags, launch
from mmseg_margin.tooling.ranks import join_ranks, watch_ranks
from mmseg_margin.tooling.submission import make_submission


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('config', help='config file')
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument(
        '--out',
        help='folder for the predictions, or for the submission '
        '(default: submission in the work dir)',
    )
    parser.add_argument(
        '--format-only',
        action='store_true',
        help='predict the unlabelled test split, check the label images and '
        'pack them for the server (Cityscapes, ADE20K, VOC2012)',
    )
    parser.add_argument(
        '--tta',
        nargs='?',
        const='ms-flip',
        choices=MODES,
        help='test-time augmentation; without a value: ms-flip',
    )
    cli.add_metrics_argument(parser)
    parser.add_argument('--show', action='store_true', help='show predictions')
    parser.add_argument('--show-dir', help='folder for painted predictions')
    parser.add_argument(
        '--wait-time', type=float, default=2, help='seconds for each --show'
    )
    cli.add_runner_arguments(parser)
    return parser.parse_args(argv)


@cli.tool
def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    cfg = launch.open_config(args)
    # The config that a resumed training has written says resume=True.
    cfg.load_from, cfg.resume = args.checkpoint, False
    flags.check_test(cfg)
    if args.show or args.show_dir:
        flags.show_predictions(cfg, args.show, args.show_dir, args.wait_time)
    launch.prepare_for_device(cfg)
    if args.tta:
        use_tta(cfg, args.tta)
    if args.format_only:
        out = args.out or os.path.join(cfg.work_dir, 'submission')
        join_ranks(cfg)  # the ranks share out the images before the Runner
        with watch_ranks():
            make_submission(cfg, out, args.verbose)
        return
    launch.check_folders(cfg, ('test',))
    flags.add_metrics(cfg, args.metrics, 'test')
    add_hook(cfg, 'TrainingCountsHook')
    if args.out:
        flags.keep_predictions(cfg, args.out)
    runner = launch.build_runner(cfg, args.verbose)
    with watch_ranks():
        runner.test()


if __name__ == '__main__':
    main()
