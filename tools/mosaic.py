"""Draw images, predictions and ground truth side by side."""

import argparse
from pathlib import Path
from typing import Any

from mmseg_margin.errors import MissingFileError, drawable
from mmseg_margin.tooling import flags
from mmseg_margin.tooling.cli import report_errors

IMAGE_SUFFIXES = ('.bmp', '.jpeg', '.jpg', '.png', '.tif', '.tiff', '.webp')


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


def images_at(paths: list[str]) -> list[dict[str, str]]:
    """The given image files, and those in the given folders."""
    found = []
    for path in map(Path, paths):
        files = [path] if path.is_file() else sorted(path.glob('*'))
        images = [f for f in files if f.suffix.lower() in IMAGE_SUFFIXES]
        if not images:
            raise MissingFileError(
                f'There is no image {path}, and no folder of that name with '
                f'images ({", ".join(IMAGE_SUFFIXES)}): check --input.'
            )
        found += [{'img_path': str(image)} for image in images]
    return found


def title_of(checkpoint: str) -> str:
    """The checkpoint with its folder, which tells several apart."""
    return drawable('/'.join(Path(checkpoint).parts[-2:]))


def load_models(cfg: Any, checkpoints: list[str]) -> list[Any]:
    """The model of a config with each checkpoint, ready to predict."""
    import torch
    from mmengine.registry import init_default_scope
    from mmseg.apis import init_model

    init_default_scope(cfg.get('default_scope', 'mmseg'))
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    return [init_model(cfg, path, device) for path in checkpoints]


def predict_row(models: list[Any], sample: dict, palette: Any) -> list[Any]:
    """RGB images (H, W, 3): image, predictions and, if known, labels."""
    from mmseg.apis import inference_model
    from mmseg.registry import TRANSFORMS

    from mmseg_margin.tooling.mosaic import paint

    load_image = TRANSFORMS.build(dict(type='LoadImageFromFile'))
    row = [load_image(dict(sample))['img'][..., ::-1]]
    for model in models:
        result = inference_model(model, sample['img_path'])
        labels = result.pred_sem_seg.data[0].byte().cpu().numpy()
        row.append(paint(labels, palette))
    if 'gt_seg_map' in sample:
        row.append(paint(sample['gt_seg_map'], palette))
    return row


@report_errors
def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    import mmseg_margin.registration  # noqa: F401  (first, and quietly)
    from mmseg_margin.config_tools import evenly_spaced
    from mmseg_margin.tooling import launch, mosaic

    cfg = launch.load_config(args.config, args.cfg_options, args.verbose)
    launch.prepare_for_device(cfg)
    if not args.input:
        launch.check_folders(cfg, ('test',))
    models = load_models(cfg, args.checkpoints)
    if args.input:
        found = images_at(args.input)
        samples = [found[i] for i in evenly_spaced(len(found), args.images)]
        meta = models[0].dataset_meta
    else:
        samples, meta = mosaic.images_of_test_split(cfg, args.images)
    classes, palette = meta['classes'], meta['palette']
    rows = [predict_row(models, each, palette) for each in samples]
    titles = ['image', *map(title_of, args.checkpoints), 'ground truth']
    args.out.parent.mkdir(parents=True, exist_ok=True)
    titles = titles[: len(rows[0])]
    mosaic.draw_mosaic(rows, titles, classes, palette, args.out)
    print(f'The picture is {args.out}')


if __name__ == '__main__':
    main()
