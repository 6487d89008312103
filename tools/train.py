"""Train a segmentor with upstream's flags, and --loss for any config."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mmseg_margin.tooling import flags
from mmseg_margin.tooling.cli import report_errors


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('config', help=flags.CONFIG_HELP)
    parser.add_argument(
        '--loss',
        metavar='NAME[:weight,key=value,...]',
        help='train every head with this objective: jaccard, margin, '
        'margin-authors, ce, wce, focal, wfocal, lovasz, dice, tversky, jml; '
        'with settings as in margin:tau=20, or a sum as in ce:0.5+lovasz:0.5',
    )
    parser.add_argument(
        '--loss-heads',
        nargs='+',
        metavar='HEAD',
        help='only these heads, for example decode_head',
    )
    for flag, text in (
        ('--no-fused-loss', "let mmseg compute the heads' losses"),
        ('--resume', 'resume from the last checkpoint in the work dir'),
        ('--amp', 'train in mixed precision'),
        ('--no-validate', 'do not evaluate while training'),
        ('--fit-offsets', 'then fit class offsets, into iter_N_offsets.pth'),
    ):
        parser.add_argument(flag, action='store_true', help=text)
    flags.add_metrics_argument(parser)
    flags.add_runner_arguments(parser)
    return parser.parse_args(argv)


@contextmanager
def resume_hint(work_dir: str) -> Iterator[None]:
    """Let Ctrl-C end a training with what ``--resume`` will do."""
    try:
        yield
    except KeyboardInterrupt as error:
        from mmengine.runner import CheckpointLoader

        hint = 'nothing was saved yet, so --resume begins at iteration 1.'
        with suppress(FileNotFoundError):
            last = Path(work_dir, 'last_checkpoint')  # what --resume reads
            path = last.read_text('utf-8').strip()
            meta = CheckpointLoader.load_checkpoint(path, 'cpu')['meta']
            hint = f'--resume goes on after iteration {meta["iter"]}.'
        raise KeyboardInterrupt(f'Stopped by Ctrl-C: {hint}') from error


@report_errors
def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    import mmseg_margin.registration  # noqa: F401  (first, and quietly)
    from mmseg_margin.config_tools import add_hook
    from mmseg_margin.losses.swap import set_objective
    from mmseg_margin.tooling import launch

    cfg = launch.open_config(args)
    if args.loss is not None:
        set_objective(cfg, args.loss, args.loss_heads)
    if not args.no_fused_loss:
        add_hook(cfg, 'FusedLossHook')
    if args.fit_offsets:
        add_hook(cfg, 'FitOffsetsHook')
    cfg.resume = args.resume
    if args.amp:
        cfg.optim_wrapper.type = 'AmpOptimWrapper'
        cfg.optim_wrapper.setdefault('loss_scale', 'dynamic')
    if args.no_validate:
        launch.without_validation(cfg)
    else:
        launch.add_metrics(cfg, args.metrics, 'val')
    launch.check_folders(cfg, ('train', 'val'))
    with resume_hint(cfg.work_dir):
        launch.prepare_for_device(cfg)
        launch.build_runner(cfg, args.verbose).train()


if __name__ == '__main__':
    main()
