"""Images of any split as they are tested: without augmentation."""

import numpy as np
from mmengine.runner import Runner
from mmseg.registry import DATASETS
from torch.utils.data import ConcatDataset, DataLoader, Subset

from mmseg_margin.walks import leaf_datasets


def plain_loader(
    runner: Runner, split: str, like: str, num_images: int | None = None
) -> DataLoader:
    """Images of one split in order, loaded as those of another are.

    Wrappers that repeat or mix images are left out. Of more than
    ``num_images`` an evenly spaced selection is taken, which stands in
    ``loader.dataset.indices``.
    """
    settings = runner.cfg[f'{like}_dataloader']
    pipeline = leaf_datasets(settings.dataset)[0].pipeline
    parts = leaf_datasets(runner.cfg[f'{split}_dataloader'].dataset)
    images: ConcatDataset = ConcatDataset(
        [DATASETS.build(dict(part, pipeline=pipeline)) for part in parts]
    )
    count = min(num_images or len(images), len(images))
    chosen = np.linspace(0, len(images) - 1, count).round().astype(int)
    return runner.build_dataloader(
        {
            'dataset': Subset(images, chosen.tolist()),
            'batch_size': settings.batch_size,
            'num_workers': settings.get('num_workers', 0),
            'sampler': {'type': 'DefaultSampler', 'shuffle': False},
        }
    )
