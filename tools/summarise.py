"""Sum up several comparisons: one table, one picture, one ranking."""

import argparse
from pathlib import Path

from mmseg_margin.comparison.report import write_summary
from mmseg_margin.tooling.cli import report_errors


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        'comparisons',
        nargs='+',
        metavar='[LABEL=]PLACE',
        help='--out folder of a comparison, or the results.json of its '
        'report; a label SCHEDULE/DATA gives each schedule its own mean',
    )
    parser.add_argument(
        '--out',
        type=Path,
        default=Path('work_dirs', 'summary'),
        help='folder of the summary (default: work_dirs/summary)',
    )
    return parser.parse_args(argv)


@report_errors
def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    print(f'The summary is {write_summary(args.comparisons, args.out)}')


if __name__ == '__main__':
    main()
