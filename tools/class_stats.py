"""Count the labels of a config's data set, check them, and show them."""

import argparse
import sys
from pathlib import Path

from mmengine.registry import init_default_scope

from mmseg_margin.errors import SettingError
from mmseg_margin.functional import OffsetSettings
from mmseg_margin.stats import (
    WEIGHT_METHODS,
    StatsCache,
    check_labels,
    format_table,
    plot_stats,
)
from mmseg_margin.tooling.cli import add_config_options, tool
from mmseg_margin.tooling.launch import check_folders, load_config


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument('config', help='any config of MMSegmentation')
    parser.add_argument(
        '--split',
        choices=('train', 'val', 'test'),
        default='train',
        help='whose data loader to look at',
    )
    parser.add_argument(
        '--plot', type=Path, help='file for a bar chart of shares and margins'
    )
    parser.add_argument(
        '--out', type=Path, help='JSON file, to be given as class_counts'
    )
    parser.add_argument(
        '--weights',
        choices=WEIGHT_METHODS,
        nargs='?',
        const='inverse',
        help='add class weights to the table, by inverse frequency if not '
        'said otherwise',
    )
    parser.add_argument('--tau', type=float, default=10.0)
    parser.add_argument('--upsilon', type=float, default=1.0)
    parser.add_argument('--num-threads', type=int, help='all cores if not set')
    parser.add_argument(
        '--no-cache', action='store_true', help='neither read nor write it'
    )
    add_config_options(parser)
    return parser.parse_args(argv)


@tool
def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    OffsetSettings(args.tau, args.upsilon)  # refuses what cannot be
    config = load_config(args.config, args.cfg_options)
    init_default_scope(config.get('default_scope', 'mmseg'))
    loader = config.get(f'{args.split}_dataloader')
    if loader is None:
        raise SettingError(f'{args.config} has no {args.split}_dataloader.')
    check_folders(config, (args.split,))
    report = check_labels(
        loader.dataset,
        config.get('model') or {},
        None if args.no_cache else StatsCache(),
        num_threads=args.num_threads,
    )
    stats = report.stats
    weights = stats.class_weights(args.weights) if args.weights else None
    print(format_table(stats, args.tau, args.upsilon, weights))
    if weights is not None:
        print(f'class_weight = {[round(weight, 6) for weight in weights]}')
    if report.errors or report.warnings:
        print(report)
    if args.out:
        stats.to_json(args.out)
        print(f'Wrote {args.out}.')
    if args.plot and stats.total:
        plot_stats(stats, args.plot, args.tau, args.upsilon)
        print(f'Wrote {args.plot}.')
    sys.exit(1 if report.errors else 0)


if __name__ == '__main__':
    main()
