"""Train a segmentor with upstream's flags, and --loss for any config."""

import argparse

from mmseg_margin.tooling import flags
from mmseg_margin.tooling.cli import report_errors


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('config', help=flags.CONFIG_HELP)
    parser.add_argument(
        '--loss',
        metavar='NAME[:weight,key=value,...]',
        help='train every head with this objective, keeping its weight: '
        f'{", ".join(flags.OBJECTIVE_NAMES)}; with settings as in '
        'margin:tau=20, or a sum as in ce:0.5+lovasz:0.5',
    )
    parser.add_argument(
        '--loss-heads',
        nargs='+',
        metavar='HEAD',
        help='only these heads, for example decode_head',
    )
    parser.add_argument(
        '--no-fused-loss',
        action='store_true',
        help="let mmseg up-sample the scores and compute the heads' losses",
    )
    parser.add_argument(
        '--resume',
        action='store_true',
        help='resume from the last checkpoint in the work dir',
    )
    parser.add_argument(
        '--amp', action='store_true', help='train in mixed precision'
    )
    parser.add_argument(
        '--no-validate',
        action='store_true',
        help='do not evaluate while training',
    )
    flags.add_metrics_argument(parser)
    parser.add_argument(
        '--auto-scale-lr',
        action='store_true',
        help='scale the learning rate with the batch size',
    )
    parser.add_argument(
        '--fit-offsets',
        action='store_true',
        help='fit class offsets to the last checkpoint at the end, into '
        'iter_N_offsets.pth',
    )
    flags.add_runner_arguments(parser)
    return parser.parse_args(argv)


@report_errors
def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    import mmseg_margin.registration  # noqa: F401  (first, and quietly)
    from mmseg_margin.config_tools import add_hook
    from mmseg_margin.losses.swap import set_objective
    from mmseg_margin.tooling import config_edits, launch
    from mmseg_margin.tooling.resuming import resume_hint

    cfg = launch.open_config(args)
    if args.loss is not None:
        set_objective(cfg, args.loss, args.loss_heads)
    if not args.no_fused_loss:
        add_hook(cfg, 'FusedLossHook')
    if args.fit_offsets:
        add_hook(cfg, 'FitOffsetsHook')
    cfg.resume = args.resume
    if args.amp:
        config_edits.use_amp(cfg)
    if args.no_validate:
        config_edits.without_validation(cfg)
    else:
        config_edits.add_metrics(cfg, args.metrics, 'val')
    if args.auto_scale_lr:
        config_edits.scale_learning_rate(cfg)
    launch.check_folders(
        cfg, ('train',) if args.no_validate else ('train', 'val')
    )
    with resume_hint(cfg.work_dir):
        launch.prepare_for_device(cfg)
        launch.build_runner(cfg, args.verbose).train()


if __name__ == '__main__':
    main()
