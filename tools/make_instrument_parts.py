"""Make the embedded data set of instrument parts."""

import argparse
import os
from pathlib import Path

from instrument_synthesis import Settings, write_dataset

from mmseg_margin.tooling.cli import report_errors

# Where the recipes look as well.
DATA = 'MMSEG_MARGIN_DATA'


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    default = Settings()
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        '--out',
        type=Path,
        default=Path(os.environ.get(DATA, 'data'), 'instrument_parts'),
        help='folder to make',
    )
    parser.add_argument(
        '--size',
        type=int,
        nargs=2,
        metavar=('WIDTH', 'HEIGHT'),
        default=(default.width, default.height),
        help='size of the images in pixels',
    )
    parser.add_argument(
        '--counts',
        type=int,
        nargs=3,
        metavar=('TRAIN', 'VAL', 'TEST'),
        default=(default.train, default.val, default.test),
        help='number of images of each split',
    )
    parser.add_argument(
        '--seed', type=int, default=default.seed, help='seed of the scenes'
    )
    return parser.parse_args(argv)


@report_errors
def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    settings = Settings(*args.size, *args.counts, args.seed)
    made = write_dataset(args.out, settings)
    print(f'{args.out}: {"made" if made else "already there, nothing to do"}')


if __name__ == '__main__':
    main()
