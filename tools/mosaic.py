"""Draw images, predictions and ground truth side by side."""

import argparse
from pathlib import Path

from mmseg_margin.tooling import flags
from mmseg_margin.tooling.cli import report_errors


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('config', help=flags.CONFIG_HELP)
    parser.add_argument(
        'checkpoints',
        nargs='+',
        metavar='checkpoint',
        help='checkpoint file; of several, the predictions stand side by side',
    )
    parser.add_argument(
        '--out', type=Path, default=Path('mosaic.png'), help='PNG to write'
    )
    parser.add_argument(
        '--images', type=int, default=6, help='how many, evenly spaced'
    )
    parser.add_argument(
        '--input',
        nargs='+',
        metavar='PATH',
        help='images, or folders of images, instead of the test split',
    )
    flags.add_config_options(parser)
    args = parser.parse_args(argv)
    if args.images < 1:
        parser.error('--images must be 1 or more')
    return args


@report_errors
def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    import mmseg_margin.registration  # noqa: F401  (first, and quietly)
    from mmseg_margin.tooling import launch, mosaic

    cfg = launch.load_config(args.config, args.cfg_options, args.verbose)
    launch.prepare_for_device(cfg)
    if not args.input:
        launch.check_folders(cfg, ('test',))
    models = [mosaic.load_model(cfg, path) for path in args.checkpoints]
    if args.input:
        samples = mosaic.own_images(args.input, args.images)
        meta = models[0].dataset_meta
    else:
        samples, meta = mosaic.images_of_test_split(cfg, args.images)
    classes, palette = meta['classes'], meta['palette']
    rows = [mosaic.predict_row(models, each, palette) for each in samples]
    titles = ['image', *map(mosaic.title_of, args.checkpoints), 'ground truth']
    args.out.parent.mkdir(parents=True, exist_ok=True)
    titles = titles[: len(rows[0])]
    mosaic.draw_mosaic(rows, titles, classes, palette, args.out)
    print(f'The picture is {args.out}')


if __name__ == '__main__':
    main()
