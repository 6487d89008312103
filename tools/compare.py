"""Train a config under several objectives and report which does best."""

import argparse
from pathlib import Path

from mmseg_margin.errors import MarginError, SettingError
from mmseg_margin.tooling import flags
from mmseg_margin.tooling.cli import report_errors


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('config', help=flags.CONFIG_HELP)
    parser.add_argument(
        '--losses',
        nargs='+',
        default=['ce', 'jaccard'],
        metavar='[NAME=]OBJECTIVE',
        help='objectives (default: ce jaccard), with settings and a name of '
        'your own as in strong=margin:tau=20,log_base=e',
    )
    parser.add_argument(
        '--seeds', type=int, default=3, help='training runs of each objective'
    )
    parser.add_argument(
        '--init', help='checkpoint to start from; {seed} stands for the seed'
    )
    parser.add_argument(
        '--out', type=Path, help='folder (default: work_dirs/compare-CONFIG)'
    )
    parser.add_argument(
        '--jobs', type=int, default=1, help='training runs at the same time'
    )
    parser.add_argument(
        '--fit-offsets',
        action='store_true',
        help='measure every network with fitted class offsets as well',
    )
    flags.add_config_options(parser)
    args = parser.parse_args(argv)
    if args.seeds < 1 or args.jobs < 1:
        parser.error('--seeds and --jobs must be 1 or more')
    return args


def named_objectives(texts: list[str]) -> dict[str, str]:
    """Objectives by the name that a user gave them, or by themselves."""
    objectives: dict[str, str] = {}
    for text in texts:
        name, equals, objective = text.partition('=')
        # Settings come after a colon, and the terms of a sum after a plus.
        if not equals or ':' in name or '+' in name:
            name = objective = text
        if objectives.setdefault(name, objective) != objective:
            raise SettingError(
                f'--losses names both {objectives[name]} and {objective} '
                f'{name!r}: give each a name of its own.'
            )
    return objectives


@report_errors
def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    import mmseg_margin.registration  # noqa: F401  (first, and quietly)
    from mmseg_margin.comparison.compare import compare
    from mmseg_margin.comparison.records import read_comparison
    from mmseg_margin.comparison.report import write_report
    from mmseg_margin.comparison.tables import verdict
    from mmseg_margin.tooling.launch import check_folders, load_config
    from mmseg_margin.tooling.mosaic import images_of_test_split

    cfg = load_config(args.config, args.cfg_options, args.verbose)
    check_folders(cfg, ('train', 'test'))
    out = args.out or Path('work_dirs', f'compare-{Path(args.config).stem}')
    losses = named_objectives(args.losses)
    settings = args.init, args.jobs, args.fit_offsets
    failures = compare(cfg, losses, range(args.seeds), out, *settings)
    samples, _ = images_of_test_split(cfg, number=4)
    print(f'The report is {write_report(out, samples)}')
    print(verdict(read_comparison(out)))
    if failures:
        raise MarginError(
            f'{len(failures)} of the runs failed, the first of them '
            f'{failures[0]}: correct the cause and give the same command '
            'again; the other results are kept.'
        )


if __name__ == '__main__':
    main()
