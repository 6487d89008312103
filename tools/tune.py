"""Search the loss and the settings that suit a config's data set."""

import argparse
from functools import partial
from pathlib import Path

from mmseg_margin.tooling.cli import add_config_options, tool
from mmseg_margin.tooling.launch import check_folders, load_config
from mmseg_margin.tuning import tune


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('config', help='config file')
    parser.add_argument(
        '--trials',
        type=int,
        default=30,
        help='finished trials in the end, over all processes and restarts',
    )
    parser.add_argument(
        '--seed', type=int, default=0, help='of the search and the trainings'
    )
    parser.add_argument('--init', help='checkpoint that all trials start from')
    parser.add_argument(
        '--out',
        type=Path,
        help='folder of the trials and the report '
        '(default: work_dirs/tune-CONFIG)',
    )
    add_config_options(parser)
    return parser.parse_args(argv)


@tool
def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    cfg = load_config(args.config, args.cfg_options)
    check_folders(cfg, ('train', 'val'))
    out = args.out or Path('work_dirs', f'tune-{Path(args.config).stem}')
    show = partial(print, flush=True)
    tune(cfg, args.trials, out, args.seed, args.init, show=show)


if __name__ == '__main__':
    main()
