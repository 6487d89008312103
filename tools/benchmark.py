"""Measure time and memory beside mmseg's own losses and data loading."""

import argparse
from pathlib import Path

from mmseg_margin.tooling import flags
from mmseg_margin.tooling.cli import report_errors

SUBJECTS = {
    'loss': 'time and memory of the objectives',
    'stage': 'up-sampling, loss, accuracy and backward of a head',
    'kernels': 'registers, launches and bytes of the GPU kernels',
    'scan': 'time of the label scan',
}
DTYPES = ('float32', 'float16', 'bfloat16')


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    subjects = parser.add_subparsers(dest='subject', required=True)
    loss, stage, kernels, scan = (
        subjects.add_parser(name, help=text, description=text)
        for name, text in SUBJECTS.items()
    )
    for parser_, shape, repeats in (
        (loss, 'NxKxHxW', 9),
        (stage, 'NxKxHxWxS, S for the scale of the up-sampling', 7),
    ):
        parser_.add_argument('--shapes', nargs='+', help=shape)
        parser_.add_argument(
            '--losses',
            nargs='+',
            metavar='NAME',
            help='such as jaccard or "jaccard, eager"',
        )
        parser_.add_argument('--repeats', type=int, default=repeats)
        parser_.add_argument('--threads', type=int, default=1)
        parser_.add_argument('--plot', type=Path, help='picture of the ratios')
    kernels.add_argument('--shapes', nargs='+', help='NxKxHxWxS')
    kernels.add_argument(
        '--architectures', nargs='+', type=int, default=[75, 80, 90]
    )
    kernels.add_argument('--scales', nargs='+', type=int, default=[1, 4, 8])
    kernels.add_argument(
        '--dtypes', nargs='+', default=DTYPES[:2], **flags.choice(DTYPES)
    )
    for parser_ in (loss, stage, kernels):
        parser_.add_argument('--json', type=Path, help='file for the figures')
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
    from benchmarks import kernels, losses, scan

    subjects = (losses.LOSS, losses.STAGE, kernels, scan)
    dict(zip(SUBJECTS, subjects, strict=True))[args.subject].run(args)


if __name__ == '__main__':
    main()
