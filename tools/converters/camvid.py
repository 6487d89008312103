"""Convert SegNet's CamVid: void becomes 255 instead of 11.

SOURCE holds train, trainannot and so on, TARGET becomes the data_root of
CamVidDataset.
"""

import argparse
from pathlib import Path

from mmseg_margin.datasets.camvid import convert_camvid
from mmseg_margin.tooling.cli import report_errors


@report_errors
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('source', type=Path, metavar='SOURCE')
    parser.add_argument('target', type=Path, metavar='TARGET')
    args = parser.parse_args()
    written = convert_camvid(args.source, args.target)
    counts = ', '.join(f'{split} {n}' for split, n in written.items())
    print(f'Images in {args.target}: {counts}.')


if __name__ == '__main__':
    main()
