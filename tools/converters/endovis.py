"""Convert the training set of EndoVis 2017 to instrument parts.

SOURCE holds instrument_dataset_1 to instrument_dataset_8, TARGET becomes the
data_root of EndoVisPartsDataset: 1,200 / 200 / 400 frames, as in the paper.
"""

import argparse
from pathlib import Path

from mmseg_margin.datasets.endovis import convert_endovis
from mmseg_margin.tooling.cli import report_errors


@report_errors
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('source', type=Path, metavar='SOURCE')
    parser.add_argument('target', type=Path, metavar='TARGET')
    args = parser.parse_args()
    written = convert_endovis(args.source, args.target)
    counts = ', '.join(f'{split} {n}' for split, n in written.items())
    print(f'\nFrames in {args.target}: {counts}.')


if __name__ == '__main__':
    main()
