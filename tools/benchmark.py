"""Measure time and memory beside mmseg's own losses and data loading."""

import argparse
from pathlib import Path

from mmseg_margin.tooling.cli import report_errors

SUBJECTS = {
    'stage': 'up-sampling, loss, accuracy and backward of a head',
    'kernels': 'registers, launches and bytes of the GPU kernels',
    'scan': 'time of the label scan',
}


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    subjects = parser.add_subparsers(dest='subject', required=True)
    stage, kernels, scan = (
        subjects.add_parser(name, help=text, description=text)
        for name, text in SUBJECTS.items()
    )
    for parser_ in (stage, kernels):
        parser_.add_argument(
            '--shapes',
            nargs='+',
            default=['2x19x512x1024x4', '2x150x512x512x4'],
            help='NxKxHxWxS, S for the scale of the up-sampling',
        )
    stage.add_argument(
        '--losses',
        nargs='+',
        metavar='NAME',
        help='such as ce, "jaccard, fused" or "jaccard, eager, fused"',
    )
    stage.add_argument('--repeats', type=int, default=7)
    stage.add_argument('--threads', type=int, default=1)
    scan.add_argument('--files', type=int, default=33)
    scan.add_argument('--repeats', type=int, default=7)
    scan.add_argument('--threads', type=int, help='all cores if not set')
    scan.add_argument(
        '--folder', type=Path, help='scan these label files (.png) instead'
    )
    return parser.parse_args(argv)


@report_errors
def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    import mmseg_margin.registration  # noqa: F401  (first, and quietly)

    # isort: split
    from benchmarks import kernels, scan, stage

    {'stage': stage, 'kernels': kernels, 'scan': scan}[args.subject].run(args)


if __name__ == '__main__':
    main()
