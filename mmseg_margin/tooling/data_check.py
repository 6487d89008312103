"""Whether the folders of a config's data sets are there at all.

What is in the files is the business of ``ClassStatsHook``; this runs before a
model is built, and for any objective.
"""

import inspect
import os
from typing import Any

from mmengine.config import Config
from mmseg.registry import DATASETS

from mmseg_margin.errors import MissingFileError
from mmseg_margin.walks import leaf_datasets

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
        for leaf in leaf_datasets(dataset):
            _check_leaf(leaf, f'{key}.dataset.data_root')


def _check_leaf(dataset: dict[str, Any], key: str) -> None:
    if dataset.get('backend_args'):
        return
    root = dataset.get('data_root') or ''
    if root and not os.path.isdir(root):
        raise MissingFileError(
            f'The data set folder {root} does not exist: put the data there '
            f'({LAYOUTS}) or set --cfg-options {key}=FOLDER.'
        )
    for prefix in (dataset.get('data_prefix') or {}).values():
        folder = os.path.join(root, prefix or '')
        if not os.path.isdir(folder):
            raise MissingFileError(
                f'The data set folder {folder} does not exist: {LAYOUTS}.'
            )
        if not any(os.scandir(folder)):
            raise MissingFileError(
                f'The data set folder {folder} is empty: {LAYOUTS}.'
            )
    _check_suffix(dataset, root)
    ann_file = dataset.get('ann_file')
    if ann_file and not os.path.exists(os.path.join(root, ann_file)):
        raise MissingFileError(
            f'The list of images {os.path.join(root, ann_file)} does not '
            f'exist: {LAYOUTS}.'
        )


def _check_suffix(dataset: dict[str, Any], root: str) -> None:
    """Whether there is an image that the data set would find."""
    prefix = (dataset.get('data_prefix') or {}).get('img_path')
    suffix = dataset.get('img_suffix') or _default_suffix(dataset['type'])
    if not prefix or not suffix or dataset.get('ann_file'):
        return
    folder = os.path.join(root, prefix)
    names = (name for _, _, files in os.walk(folder) for name in files)
    if not any(name.endswith(suffix) for name in names):
        raise MissingFileError(
            f'No file in {folder} ends with {suffix}: set img_suffix of the '
            f'data set to the ending of its images, or {LAYOUTS}.'
        )


def _default_suffix(kind: Any) -> str | None:
    found = DATASETS.get(kind) if isinstance(kind, str) else kind
    if found is None:
        return None
    parameter = inspect.signature(found).parameters.get('img_suffix')
    return parameter.default if parameter else None
