"""Predictions on a few images, of a config's test split or of one's own."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.registry import init_default_scope
from mmseg.apis import inference_model, init_model
from mmseg.registry import DATASETS, TRANSFORMS
from torch import nn

from mmseg_margin.errors import MissingFileError

from .mosaic import Image, paint

IMAGE_SUFFIXES = ('.bmp', '.jpeg', '.jpg', '.png', '.tif', '.tiff', '.webp')


def load_model(cfg: Config, checkpoint: str) -> nn.Module:
    """The model of a config, ready to predict."""
    init_default_scope(cfg.get('default_scope', 'mmseg'))
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    return init_model(cfg, checkpoint, device)


def images_of_test_split(
    cfg: Config, count: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Image and labels, evenly spread over the split, and its metainfo."""
    dataset = DATASETS.build(cfg.test_dataloader.dataset)
    load_labels = TRANSFORMS.build(dict(type='LoadAnnotations'))
    chosen = np.linspace(0, len(dataset) - 1, min(count, len(dataset)))
    samples = [
        load_labels(dataset.get_data_info(index))
        for index in chosen.round().astype(int).tolist()
    ]
    return samples, dataset.metainfo


def own_images(paths: Sequence[str]) -> list[dict[str, Any]]:
    """Files, and all images in folders."""
    found = [path for name in paths for path in _images_in(Path(name))]
    return [{'img_path': str(path)} for path in found]


def predict_rows(
    model: nn.Module,
    samples: Sequence[dict[str, Any]],
    palette: Sequence[Sequence[int]],
) -> Iterator[tuple[Image, ...]]:
    """RGB images (H, W, 3): image, prediction, and labels if there are."""
    load_image = TRANSFORMS.build(dict(type='LoadImageFromFile'))
    for sample in samples:
        image = load_image(dict(sample))['img']
        result = inference_model(model, sample['img_path'])
        labels = result.pred_sem_seg.data[0].cpu().numpy().astype(np.uint8)
        row = [np.ascontiguousarray(image[..., ::-1]), paint(labels, palette)]
        if 'gt_seg_map' in sample:
            row.append(paint(sample['gt_seg_map'], palette))
        yield tuple(row)


def _images_in(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    images = [
        file
        for file in sorted(path.glob('*'))
        if file.suffix.lower() in IMAGE_SUFFIXES
    ]
    if not images:
        raise MissingFileError(
            f'There is no image {path}, and no folder of that name with '
            f'images ({", ".join(IMAGE_SUFFIXES)}).'
        )
    return images
