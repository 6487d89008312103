"""Loads a config, checks its folders and builds the runner."""

import inspect
import os
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config, ConfigDict
from mmengine.runner import Runner
from mmseg.registry import DATASETS, RUNNERS

import mmseg_margin.registration  # noqa: F401  (in a tool: not yet done)
from mmseg_margin.compat import PACKAGE, apply_patches, packed_folder
from mmseg_margin.config_tools import leaf_datasets, nodes, registered_name
from mmseg_margin.errors import MissingFileError, SettingError, did_you_mean

from .ranks import join_ranks_on_cpu
from .resuming import ObjectiveHook
from .screen import QuietRunner, hide_upstream_messages

# The name in mmcv's registry and the name of the class.
SYNC_BN = ('SyncBN', 'SyncBatchNorm')


def config_path(config: str) -> Path:
    """The file of a path or of ``package::path``, as in ``_base_``."""
    package, scope, name = config.rpartition('::')
    if not scope:
        return Path(config)
    if package == PACKAGE.name:
        return packed_folder('configs') / name
    found = find_spec(package) if package.isidentifier() else None
    if found is None or not found.submodule_search_locations:
        raise SettingError(
            f'The config {config} names no installed package.'
            f'{did_you_mean(package, ("mmseg", PACKAGE.name))}'
        )
    return Path(found.submodule_search_locations[0], '.mim', 'configs', name)


def load_config(
    config: str,
    options: dict[str, Any] | None = None,
    is_verbose: bool = False,
) -> Config:
    """Read a config, ``mmseg::`` and its bases included, and override it."""
    apply_patches()
    if not is_verbose:
        hide_upstream_messages()
    path = config_path(config)
    if not path.is_file():
        raise MissingFileError(
            f'The config {path} does not exist: give the path to a config '
            'file, or package::path.'
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
    cfg = load_config(args.config, args.cfg_options, args.verbose)
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
    prefixes = dataset.get('data_prefix') or {}
    names = filter(None, [*prefixes.values(), dataset.get('ann_file')])
    paths = [root, *(os.path.join(root, name) for name in names)]
    for path in map(Path, filter(None, paths)):
        is_empty = path.is_dir() and not any(path.iterdir())
        if is_empty or not path.exists():
            raise MissingFileError(
                f'The data set folder {path} '
                f'{"is empty" if is_empty else "does not exist"}: put the '
                f'data there, set --cfg-options {key}=FOLDER, or correct '
                'data_prefix or ann_file of the data set.'
            )
    if prefixes.get('img_path') and not dataset.get('ann_file'):
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
    join_ranks_on_cpu(cfg)
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
        print(
            'No CUDA device was found, so everything runs on the CPU: '
            f'{", ".join(changes)}.'
        )


def build_runner(cfg: Config, is_verbose: bool = False) -> Runner:
    """The runner of a config, of the config's ``runner_type`` if given."""
    apply_patches()
    if 'runner_type' in cfg:
        runner = RUNNERS.build(cfg)
    else:
        runner = (Runner if is_verbose else QuietRunner).from_cfg(cfg)
    runner.register_hook(ObjectiveHook())
    return runner
