"""The labels of the tested images, for the report's examples."""

from pathlib import Path

import numpy as np
from mmengine.config import Config
from mmengine.registry import init_default_scope
from mmseg.registry import DATASETS, TRANSFORMS
from PIL import Image

from mmseg_margin.atomic_write import atomic_write

from .examples import Sample

FOLDER = 'ground_truth'


def write_ground_truth(cfg: Config, out: Path) -> list[Sample]:
    """Labels of the test split as class indices, whatever its files hold.

    Returns:
        Name, image file and label file of each image.
    """
    init_default_scope(cfg.get('default_scope', 'mmseg'))
    settings = cfg.test_dataloader.dataset
    dataset = DATASETS.build(settings)
    load_labels = TRANSFORMS.build(
        next(t for t in settings.pipeline if t.type == 'LoadAnnotations')
    )
    folder = out / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    samples = []
    for index in range(len(dataset)):
        info = dataset.get_data_info(index)
        image = Path(info['img_path'])
        labels = folder / f'{image.stem}.png'
        if not labels.exists():
            loaded = load_labels(info)['gt_seg_map']
            with atomic_write(labels) as draft:
                Image.fromarray(loaded.astype(np.uint8)).save(draft, 'png')
        samples.append((image.stem, image, labels))
    return samples
