"""Whether the folders of a config's data sets are there at all.

What is in the files is the business of ``ClassStatsHook``; this runs before a
model is built, and for any objective.
"""

import os
from collections.abc import Iterator
from typing import Any

from mmengine.config import Config

LAYOUTS = 'see docs/datasets.md for the layout'


def check_folders(cfg: Config, splits: tuple[str, ...]) -> None:
    """Raise if a folder or list of images is missing or empty.

    Args:
        cfg: A config with ``{split}_dataloader``.
        splits: For example ``('train', 'val')``.
    """
    for split in splits:
        key = f'{split}_dataloader'
        dataset = (cfg.get(key) or {}).get('dataset')
        for leaf in _leaves(dataset):
            _check_leaf(leaf, f'{key}.dataset.data_root')


def _check_leaf(dataset: dict[str, Any], key: str) -> None:
    if dataset.get('backend_args'):
        return
    root = dataset.get('data_root') or ''
    if root and not os.path.isdir(root):
        raise FileNotFoundError(
            f'The data set folder {root} does not exist: put the data there '
            f'({LAYOUTS}) or set --cfg-options {key}=FOLDER.'
        )
    for prefix in (dataset.get('data_prefix') or {}).values():
        folder = os.path.join(root, prefix or '')
        if not os.path.isdir(folder):
            raise FileNotFoundError(
                f'The data set folder {folder} does not exist: {LAYOUTS}.'
            )
        if not any(os.scandir(folder)):
            raise FileNotFoundError(
                f'The data set folder {folder} is empty: {LAYOUTS}.'
            )
    ann_file = dataset.get('ann_file')
    if ann_file and not os.path.exists(os.path.join(root, ann_file)):
        raise FileNotFoundError(
            f'The list of images {os.path.join(root, ann_file)} does not '
            f'exist: {LAYOUTS}.'
        )


def _leaves(dataset: Any) -> Iterator[dict[str, Any]]:
    """The data sets inside ConcatDataset, RepeatDataset and the like."""
    if not isinstance(dataset, dict):
        return
    inner = dataset.get('datasets') or [dataset.get('dataset')]
    if inner == [None]:
        yield dataset
    for item in inner:
        yield from _leaves(item)
