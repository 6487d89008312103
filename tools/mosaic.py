"""Draw images, predictions and ground truth side by side."""

import argparse
from pathlib import Path

from mmseg_margin.errors import SettingError
from mmseg_margin.tooling import flags
from mmseg_margin.tooling.cli import report_errors

TITLES = ('image', 'prediction', 'ground truth')


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('config', help=flags.CONFIG_HELP)
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument(
        '--out',
        type=Path,
        help='PNG to write (default: mosaic.png, or mosaic_1.png and so on '
        'if that exists)',
    )
    parser.add_argument(
        '--images', type=int, default=6, help='how many test images'
    )
    parser.add_argument(
        '--input',
        nargs='+',
        metavar='PATH',
        help='draw these images, or all images in these folders, instead',
    )
    flags.add_config_options(parser)
    return parser.parse_args(argv)


@report_errors
def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    if args.images < 1:
        raise SettingError(f'--images must be 1 or more, got {args.images}.')
    import mmseg_margin.registration  # noqa: F401  (first, and quietly)
    from mmseg_margin.tooling import launch, mosaic

    cfg = launch.load_config(args.config, args.cfg_options, args.verbose)
    launch.prepare_for_device(cfg)
    if args.input:
        samples = mosaic.own_images(args.input)
    else:
        launch.check_folders(cfg, ('test',))
    model = mosaic.load_model(cfg, args.checkpoint)
    meta = model.dataset_meta
    if not args.input:
        samples, meta = mosaic.images_of_test_split(cfg, args.images)
    samples = list(samples)
    rows = list(mosaic.predict_rows(model, samples, meta['palette']))
    out = args.out or mosaic.free_path(Path('mosaic.png'))
    out.parent.mkdir(parents=True, exist_ok=True)
    mosaic.draw_mosaic(
        rows,
        TITLES[: len(rows[0])],
        meta['classes'],
        meta['palette'],
        str(out),
        names=[Path(sample['img_path']).name for sample in samples],
        side_by_side=mosaic.samples_side_by_side(rows),
    )
    print(f'The picture is {out}')


if __name__ == '__main__':
    main()
