"""Sum up several comparisons: one table, one picture, one ranking."""

import argparse
from pathlib import Path

from mmseg_margin.comparison.summary import load_summary
from mmseg_margin.comparison.summary_report import write_summary
from mmseg_margin.tooling.cli import report_errors


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        'comparisons',
        nargs='+',
        metavar='[LABEL=]PLACE',
        help='--out folder of compare, or the results.json of its report; '
        'a label SCHEDULE/DATA gives each schedule a mean of its own',
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
    summary = load_summary(args.comparisons)
    print(f'The summary is {write_summary(summary, args.out)}')


if __name__ == '__main__':
    main()
