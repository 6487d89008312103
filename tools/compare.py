"""Train a config under several objectives and report which does best."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from mmseg_margin.tooling import flags
from mmseg_margin.tooling.cli import report_errors

if TYPE_CHECKING:
    from mmengine.config import Config


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('config', help=flags.CONFIG_HELP)
    parser.add_argument(
        '--losses',
        nargs='+',
        default=list(flags.OBJECTIVE_NAMES),
        metavar='[NAME=]OBJECTIVE',
        help='objectives (default: all named ones); with settings as in '
        'margin:tau=20,log_base=e, and with a name of your own as in '
        'strong=margin:tau=20',
    )
    parser.add_argument(
        '--seeds', type=int, default=3, help='trainings of each objective'
    )
    parser.add_argument(
        '--init',
        help='checkpoint that all trainings start from; {seed} in it stands '
        'for the seed',
    )
    parser.add_argument(
        '--out',
        type=Path,
        help='folder of the runs and the report '
        '(default: work_dirs/compare-CONFIG)',
    )
    parser.add_argument(
        '--jobs', type=int, default=1, help='trainings at the same time'
    )
    parser.add_argument(
        '--fit-offsets',
        action='store_true',
        help='measure every network once more with fitted class offsets; '
        'finished runs are not trained again',
    )
    flags.add_config_options(parser)
    return parser.parse_args(argv)


@report_errors
def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    import mmseg_margin.registration  # noqa: F401  (first, and quietly)
    from mmseg_margin.comparison.compare import (
        RunFailedError,
        compare,
        named_objectives,
    )
    from mmseg_margin.tooling.launch import check_folders, load_config

    cfg = load_config(args.config, args.cfg_options, args.verbose)
    check_folders(cfg, ('train', 'test'))
    out = args.out or Path('work_dirs', f'compare-{Path(args.config).stem}')
    try:
        compare(
            cfg,
            named_objectives(args.losses),
            list(range(args.seeds)),
            out,
            args.init,
            args.jobs,
            args.fit_offsets,
        )
    except RunFailedError:
        _report(cfg, out)
        raise
    _report(cfg, out)


def _report(cfg: 'Config', out: Path) -> None:
    from mmseg_margin.comparison.report import write_report
    from mmseg_margin.tooling.mosaic import images_of_test_split

    samples, _ = images_of_test_split(cfg)
    print(f'The report is {write_report(out, samples)}')


if __name__ == '__main__':
    main()
