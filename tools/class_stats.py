"""Count the labels of a config's data set, check them, and show them."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mmseg_margin.errors import MissingFileError, SettingError
from mmseg_margin.tooling import flags
from mmseg_margin.tooling.cli import report_errors

if TYPE_CHECKING:
    from mmengine.config import Config

    from mmseg_margin.functional import OffsetSettings
    from mmseg_margin.stats import LabelReport

SPLITS = ('train', 'val', 'test')


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument('config', help=flags.CONFIG_HELP)
    parser.add_argument(
        '--split',
        default='train',
        help='which data set to count; train also checks the labels of val',
        **flags.choice(SPLITS),
    )
    parser.add_argument(
        '--plot', type=Path, help='file for a bar chart of shares and offsets'
    )
    parser.add_argument(
        '--out', type=Path, help='JSON file, to be given as class_counts'
    )
    parser.add_argument(
        '--weights',
        nargs='?',
        const='inverse',
        help='add class weights to the table, by inverse frequency if no '
        'method is given',
        **flags.choice(flags.WEIGHT_METHODS),
    )
    parser.add_argument(
        '--tau',
        type=float,
        help='show the margin-offsets of this tau; by default, those of the '
        "config's loss, if it has any",
    )
    parser.add_argument('--upsilon', type=float, help='likewise')
    parser.add_argument('--num-threads', type=int, help='all cores if not set')
    parser.add_argument(
        '--no-cache', action='store_true', help='neither read nor write it'
    )
    flags.add_config_options(parser)
    return parser.parse_args(argv)


@report_errors
def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    from mmengine.registry import init_default_scope

    import mmseg_margin.registration  # noqa: F401  (first, and quietly)
    from mmseg_margin.functional import OffsetSettings
    from mmseg_margin.stats import plot_stats
    from mmseg_margin.tooling.launch import load_config

    given = {'tau': args.tau, 'upsilon': args.upsilon}
    given = {key: value for key, value in given.items() if value is not None}
    offsets = OffsetSettings(**given) if given else None
    config = load_config(args.config, args.cfg_options, args.verbose)
    init_default_scope(config.get('default_scope', 'mmseg'))
    if offsets is None and args.split == 'train':
        # Only the training set determines the offsets of a training.
        offsets = config_offsets(config)
    report = check_split(config, args, offsets)
    stats = report.stats
    weights = stats.class_weights(args.weights) if args.weights else None
    print(report.table(weights))
    if weights is not None:
        print(f'class_weight = {[round(weight, 6) for weight in weights]}')
    if str(report):
        print(report)
    if args.out:
        stats.to_json(args.out)
        print(f'Wrote {args.out}.')
    if args.plot and stats.total:
        plot_stats(stats, args.plot, report.offsets)
        print(f'Wrote {args.plot}.')
    sys.exit(1 if report.errors else 0)


def config_offsets(config: 'Config') -> 'OffsetSettings | None':
    """How the loss of a config derives margin-offsets, if it does."""
    from mmseg_margin.config_tools import as_list, nodes, registered_name
    from mmseg_margin.losses.objectives import build_loss, parse_objective

    terms = list(nodes(config.get('model')))
    for hook in as_list(config.get('custom_hooks')):
        if registered_name(hook) == 'SwapLossHook':
            terms = parse_objective(hook.get('loss', 'jaccard'))
    for term in terms:
        if term.get('type') == 'MarginCalibrationLoss':
            return build_loss(term).offset_settings
    return None


def check_split(
    config: 'Config',
    args: argparse.Namespace,
    offsets: 'OffsetSettings | None',
) -> 'LabelReport':
    """The report on one split; that on train includes the labels of val."""
    from mmseg_margin.stats import CheckOptions, StatsCache, check_labels
    from mmseg_margin.tooling.launch import check_folders

    loader = config.get(f'{args.split}_dataloader')
    if loader is None:
        raise SettingError(f'{args.config} has no {args.split}_dataloader.')
    check_folders(config, (args.split,))
    validation = None
    if args.split == 'train' and config.get('val_dataloader') is not None:
        try:
            check_folders(config, ('val',))
            validation = config.val_dataloader.dataset
        except MissingFileError as error:
            print(f'The labels of the validation set are not checked: {error}')
    return check_labels(
        loader.dataset,
        config.get('model') or {},
        None if args.no_cache else StatsCache(),
        CheckOptions(num_threads=args.num_threads, offsets=offsets),
        validation,
    )


if __name__ == '__main__':
    main()
