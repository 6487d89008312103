"""Predictions on a few images of a config's test split."""

from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.registry import init_default_scope
from mmseg.apis import inference_model, init_model
from mmseg.registry import DATASETS, TRANSFORMS

from .mosaic import Image, paint


def predict_samples(
    cfg: Config, checkpoint: str, count: int
) -> tuple[list[tuple[Image, Image, Image]], dict[str, Any]]:
    """Image, prediction and ground truth, evenly spread over the split.

    Returns:
        Triples of RGB images (H, W, 3), and the data set's metainfo.
    """
    init_default_scope(cfg.get('default_scope', 'mmseg'))
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    model = init_model(cfg, checkpoint, device)
    dataset = DATASETS.build(cfg.test_dataloader.dataset)
    palette = dataset.metainfo['palette']
    load_image = TRANSFORMS.build(dict(type='LoadImageFromFile'))
    load_labels = TRANSFORMS.build(dict(type='LoadAnnotations'))
    rows = []
    chosen = np.linspace(0, len(dataset) - 1, min(count, len(dataset)))
    for index in chosen.round().astype(int).tolist():
        sample = load_labels(load_image(dataset.get_data_info(index)))
        result = inference_model(model, sample['img_path'])
        labels = result.pred_sem_seg.data[0].cpu().numpy().astype(np.uint8)
        rows.append(
            (
                np.ascontiguousarray(sample['img'][..., ::-1]),
                paint(labels, palette),
                paint(sample['gt_seg_map'], palette),
            )
        )
    return rows, dataset.metainfo
