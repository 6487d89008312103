"""Loads a config, checks its folders and builds the runner."""

import inspect
import os
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config, ConfigDict
from mmengine.dist import is_main_process
from mmengine.logging import print_log
from mmengine.runner import Runner
from mmseg.registry import DATASETS, RUNNERS

from mmseg_margin.config_tools import leaf_datasets, nodes, registered_name
from mmseg_margin.errors import MissingFileError, SettingError

from .progress import ProgressHook
from .ranks import join_ranks

# The name in mmcv's registry and the name of the class.
SYNC_BN = ('SyncBN', 'SyncBatchNorm')


def load_config(path: str, options: dict[str, Any] | None = None) -> Config:
    """Read a config, its ``mmseg::`` bases included, and override it."""
    if not Path(path).is_file():
        raise MissingFileError(
            f'The config {path} does not exist: give the path to a config '
            'file.'
        )
    try:
        cfg = Config.fromfile(path)
    except (SyntaxError, FileNotFoundError) as error:  # the latter for a base
        raise SettingError(
            f'The config {path} cannot be read: {error}'
        ) from error
    try:
        cfg.merge_from_dict(options or {})
    except (AttributeError, LookupError, TypeError) as error:
        raise SettingError(
            f'--cfg-options {options} do not fit the config: {error}'
        ) from error
    return cfg


def open_config(args: Namespace) -> Config:
    """The config of a tool that runs it, with upstream's common flags.

    The work dir is given by the flag, the config or the config's file name.
    """
    os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    cfg = load_config(args.config, args.cfg_options)
    cfg.launcher = args.launcher
    default = os.path.join('work_dirs', Path(args.config).stem)
    cfg.work_dir = args.work_dir or cfg.get('work_dir') or default
    return cfg


def check_folders(cfg: Config, splits: tuple[str, ...]) -> None:
    """Raise if a folder or list of images is missing or empty.

    ``ClassStatsHook`` checks the content of the files.
    """
    for split in splits:
        loader = cfg.get(f'{split}_dataloader') or {}
        for dataset in leaf_datasets(loader.get('dataset')):
            if not dataset.get('backend_args'):
                _check_local(dataset, f'{split}_dataloader.dataset.data_root')


def _check_local(dataset: ConfigDict, key: str) -> None:
    root = dataset.get('data_root') or ''
    if root and not os.path.isdir(root):
        raise MissingFileError(
            f'The data set folder {root} does not exist: put the data there, '
            f'or set --cfg-options {key}=FOLDER.'
        )
    prefixes = dataset.get('data_prefix') or {}
    for name, prefix in prefixes.items():
        folder = os.path.join(root, prefix or '')
        exists = os.path.isdir(folder)
        if not exists or not any(os.scandir(folder)):
            raise MissingFileError(
                f'The data set folder {folder} '
                f'{"is empty" if exists else "does not exist"}: put the files '
                f'there, or correct data_prefix.{name} of the data set.'
            )
    if dataset.get('ann_file'):
        listing = os.path.join(root, dataset['ann_file'])
        if not os.path.exists(listing):
            raise MissingFileError(
                f'The list of images {listing} does not exist: put it there, '
                'or correct ann_file of the data set.'
            )
    elif prefixes.get('img_path'):
        _check_suffix(dataset, os.path.join(root, prefixes['img_path']))


def _check_suffix(dataset: ConfigDict, folder: str) -> None:
    """Raise if no file has the suffix that the data set looks for."""
    kind = dataset['type']
    kind = DATASETS.get(kind) if isinstance(kind, str) else kind
    parameters = inspect.signature(kind).parameters if kind else {}
    default = getattr(parameters.get('img_suffix'), 'default', None)
    suffix = dataset.get('img_suffix') or default
    names = (name for _, _, files in os.walk(folder) for name in files)
    if suffix and not any(name.endswith(suffix) for name in names):
        raise MissingFileError(
            f'No file in {folder} ends with {suffix}: set img_suffix of the '
            'data set to the suffix of its images.'
        )


def prepare_for_device(cfg: Config) -> None:
    """Without CUDA, open the process group and replace what needs CUDA."""
    if torch.cuda.is_available():
        return  # the runner opens the process group
    join_ranks(cfg)
    changes = []
    for node in nodes(cfg.model):
        if 'type' in node and registered_name(node) in SYNC_BN:
            node.type = 'BN'
            changes = ['SyncBN became BN']
    optimizer = cfg.get('optim_wrapper') or ConfigDict()
    if registered_name({'type': '', **optimizer}) == 'AmpOptimWrapper':
        optimizer.type = 'OptimWrapper'
        optimizer.pop('loss_scale', None)
        optimizer.pop('dtype', None)
        changes.append('mixed precision is off')
    if cfg.get('launcher', 'none') != 'none':
        cfg.merge_from_dict({'env_cfg.dist_cfg.backend': 'gloo'})
        cfg.model_wrapper_cfg = ConfigDict(
            type='MMDistributedDataParallel',
            device_ids=None,
            broadcast_buffers=False,
            find_unused_parameters=cfg.get('find_unused_parameters', False),
        )
        changes.append('the ranks communicate through gloo')
    if changes and os.environ.get('RANK', '0') == '0':
        print_log(
            'No CUDA device was found, so everything runs on the CPU: '
            f'{", ".join(changes)}.'
        )


def build_runner(cfg: Config, is_verbose: bool = True) -> Runner:
    """The runner of a config, of the config's ``runner_type`` if given."""
    make = RUNNERS.build if 'runner_type' in cfg else Runner.from_cfg
    runner = make(cfg)
    if not is_verbose and is_main_process():
        runner.register_hook(ProgressHook())
    return runner
