"""Test a checkpoint, or make a submission for a data set's server."""

import argparse
import os
from typing import Any

from mmseg_margin.errors import SettingError
from mmseg_margin.tooling import flags
from mmseg_margin.tooling.cli import report_errors


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('config', help=flags.CONFIG_HELP)
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
        help='test-time augmentation; without a value: ms-flip',
        **flags.choice(flags.TTA_MODES),
    )
    flags.add_metrics_argument(parser)
    parser.add_argument('--show', action='store_true', help='show predictions')
    parser.add_argument('--show-dir', help='folder for painted predictions')
    parser.add_argument(
        '--wait-time', type=float, default=2, help='seconds for each --show'
    )
    flags.add_runner_arguments(parser)
    return parser.parse_args(argv)


def keep_predictions(cfg: Any, output_dir: str) -> None:
    """Make the metric of the IoU write the predictions."""
    from mmseg_margin.config_tools import as_list, registered_name
    from mmseg_margin.tooling.launch import IOU_METRICS

    for metric in as_list(cfg.test_evaluator):
        if registered_name(metric) in IOU_METRICS:
            metric['output_dir'] = output_dir
            return
    raise SettingError(
        f'--out {output_dir} needs IoUMetric as test_evaluator.'
    )


def show_predictions(cfg: Any, args: argparse.Namespace) -> None:
    """Make upstream's visualisation hook draw every prediction."""
    hook = dict(type='SegVisualizationHook', draw=True)
    hook.update(show=args.show, wait_time=args.wait_time)
    cfg.merge_from_dict({'default_hooks.visualization': hook})
    if args.show_dir:
        cfg.visualizer['save_dir'] = args.show_dir


@report_errors
def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    import mmseg_margin.registration  # noqa: F401  (first, and quietly)
    from mmseg_margin.config_tools import add_hook
    from mmseg_margin.evaluation.tta import use_tta
    from mmseg_margin.tooling import launch, submission

    cfg = launch.open_config(args)
    # The config that a resumed training has written says resume=True.
    cfg.load_from, cfg.resume = args.checkpoint, False
    if args.show or args.show_dir:
        show_predictions(cfg, args)
    if args.format_only:
        submission.use_test_images(cfg)
    else:
        launch.add_metrics(cfg, args.metrics, 'test')
        add_hook(cfg, 'TrainingCountsHook')
        if args.out:
            keep_predictions(cfg, args.out)
    launch.check_folders(cfg, ('test',))
    launch.prepare_for_device(cfg)
    if args.tta:
        use_tta(cfg, args.tta)
    if args.format_only:
        out = args.out or os.path.join(cfg.work_dir, 'submission')
        submission.make_submission(cfg, out, args.verbose)
    else:
        launch.build_runner(cfg, args.verbose).test()


if __name__ == '__main__':
    main()
