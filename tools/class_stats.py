"""Count the labels of a config's training set, check them, and show them."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmseg_margin.errors import MissingFileError, SettingError
from mmseg_margin.tooling import flags
from mmseg_margin.tooling.cli import report_errors

if TYPE_CHECKING:
    from mmengine.config import Config

    from mmseg_margin.functional import OffsetSettings


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('config', help=flags.CONFIG_HELP)
    parser.add_argument('--plot', type=Path, help='file for a bar chart')
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
    flags.add_config_options(parser)
    return parser.parse_args(argv)


@report_errors
def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    from mmengine.registry import init_default_scope

    import mmseg_margin.registration  # noqa: F401  (first, and quietly)
    from mmseg_margin.stats import StatsCache, check_labels, plot_stats
    from mmseg_margin.tooling.launch import check_folders, load_config

    config = load_config(args.config, args.cfg_options, args.verbose)
    init_default_scope(config.get('default_scope', 'mmseg'))
    if config.get('train_dataloader') is None:
        raise SettingError(f'{args.config} has no train_dataloader.')
    check_folders(config, ('train',))
    report = check_labels(
        config.train_dataloader.dataset,
        config.get('model') or {},
        StatsCache(),
        config_offsets(config),
        find_validation(config),
    )
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
        plot_stats(stats, args.plot)
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


def find_validation(config: 'Config') -> Any:
    """The config of the validation set, if there is one on this machine."""
    from mmseg_margin.tooling.launch import check_folders

    if config.get('val_dataloader') is None:
        return None
    try:
        check_folders(config, ('val',))
    except MissingFileError as error:
        print(f'The labels of the validation set are not checked: {error}')
        return None
    return config.val_dataloader.dataset


if __name__ == '__main__':
    main()
