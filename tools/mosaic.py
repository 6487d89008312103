"""Draw image, prediction and ground truth of some test images side by side."""

import argparse
from pathlib import Path

from mmseg_margin.tooling.cli import tool
from mmseg_margin.tooling.data_check import check_folders
from mmseg_margin.tooling.launch import load_config, prepare_for_device
from mmseg_margin.tooling.mosaic import draw_mosaic
from mmseg_margin.tooling.predict import predict_samples


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('config', help='config file')
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument('--out', default='mosaic.png', help='PNG to write')
    parser.add_argument(
        '--images', type=int, default=6, help='how many test images'
    )
    return parser.parse_args(argv)


@tool
def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    cfg = load_config(args.config)
    check_folders(cfg, ('test',))
    prepare_for_device(cfg)
    rows, meta = predict_samples(cfg, args.checkpoint, args.images)
    Path(args.out).parent.mkdir(parents=True, exist_ok=True)
    draw_mosaic(
        rows,
        ('image', 'prediction', 'ground truth'),
        meta['classes'],
        meta['palette'],
        args.out,
    )
    print(f'The picture is {args.out}')


if __name__ == '__main__':
    main()
