"""Count the labels of a config's data set, check them, and show them."""

import argparse
import sys
from pathlib import Path

from mmengine.config import Config, DictAction
from mmengine.registry import DATASETS, init_default_scope

from mmseg_margin.compat import switch_on
from mmseg_margin.stats import (
    WEIGHT_METHODS,
    DataSetError,
    LabelRange,
    StatsCache,
    collect_stats,
    format_table,
    ignore_index_of,
    inspect,
    label_heads,
    plot_stats,
)


def parse_args() -> argparse.Namespace:
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
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        action=DictAction,
        help='override settings of the config, as key=value',
    )
    return parser.parse_args()


def main() -> int:
    args = parse_args()
    switch_on()
    config = Config.fromfile(args.config)
    config.merge_from_dict(args.cfg_options or {})
    init_default_scope(config.get('default_scope', 'mmseg'))
    loader = config.get(f'{args.split}_dataloader')
    if loader is None:
        raise DataSetError(f'{args.config} has no {args.split}_dataloader.')
    dataset = DATASETS.build(loader.dataset)
    heads = label_heads(config.get('model') or {})
    num_classes = heads[0].num_classes if heads else None
    collected = collect_stats(
        dataset,
        LabelRange(num_classes, ignore_index_of(heads, dataset)),
        None if args.no_cache else StatsCache(),
        num_threads=args.num_threads,
    )
    stats = collected.stats
    weights = stats.class_weights(args.weights) if args.weights else None
    print(format_table(stats, args.tau, args.upsilon, weights))
    if weights is not None:
        print(f'class_weight = {[round(weight, 6) for weight in weights]}')
    report = inspect(collected, dataset, heads)
    if report.errors or report.warnings:
        print(report)
    if args.out:
        stats.to_json(args.out)
        print(f'Wrote {args.out}.')
    if args.plot and stats.total:
        plot_stats(stats, args.plot, args.tau, args.upsilon)
        print(f'Wrote {args.plot}.')
    return 1 if report.errors else 0


if __name__ == '__main__':
    try:
        sys.exit(main())
    except (OSError, ValueError) as error:  # bad data or settings, full disk
        sys.exit(f'error: {error}')
