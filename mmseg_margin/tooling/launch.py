"""Loads a config, edits it for the flags of the tools, builds its runner."""

import atexit
import os
from argparse import Namespace
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config, ConfigDict
from mmengine.dist import is_distributed
from mmengine.runner import Runner
from torch import distributed

import mmseg_margin.registration  # noqa: F401  (in a tool: not yet done)
from mmseg_margin.compat import PACKAGE, apply_patches, packed_folder
from mmseg_margin.config_tools import (
    add_hook,
    as_list,
    leaf_datasets,
    nodes,
    registered_name,
)
from mmseg_margin.errors import MissingFileError, SettingError, did_you_mean

from .screen import ObjectiveHook, QuietRunner, hide_upstream_messages

# The name in mmcv's registry and the name of the class.
SYNC_BN = ('SyncBN', 'SyncBatchNorm')
ADDED_METRICS = {
    'bound': 'MarginBoundMetric',
    'cityscapes': 'CityscapesScoresMetric',
}
IOU_METRICS = ('IoUMetric', 'PerClassIoUMetric', 'TailIoUMetric')


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
    """Raise if the folder of a data set does not exist."""
    for split in splits:
        loader = cfg.get(f'{split}_dataloader') or {}
        for dataset in leaf_datasets(loader.get('dataset')):
            root = dataset.get('data_root') or '.'
            if not dataset.get('backend_args') and not os.path.isdir(root):
                raise MissingFileError(
                    f'The data set folder {root} does not exist: put the '
                    f'data there, or set --cfg-options {split}_dataloader.'
                    'dataset.data_root=FOLDER.'
                )


def without_validation(cfg: Config) -> None:
    """Remove the validation from a training."""
    for key in ('val_cfg', 'val_dataloader', 'val_evaluator'):
        cfg[key] = None
    checkpoint = (cfg.get('default_hooks') or {}).get('checkpoint') or {}
    checkpoint.pop('save_best', None)


def add_metrics(cfg: Config, choices: list[str], split: str) -> None:
    """Add metrics to the evaluator of ``val`` or ``test``.

    With any choice IoUMetric also gives the IoU of every class. ``'tail'``
    adds the mIoU of frequent and rare classes, ``'foreground'`` the mIoU
    without the class background, the others add metrics.
    """
    if not choices:
        return
    metrics = as_list(cfg.get(f'{split}_evaluator'))
    for metric in metrics:
        if registered_name(metric) in IOU_METRICS[:2]:
            metric['type'] = IOU_METRICS[2 if 'tail' in choices else 1]
        if registered_name(metric) in IOU_METRICS and 'foreground' in choices:
            metric.setdefault('exclude', ['background'])
    for choice, name in ADDED_METRICS.items():
        if choice in choices and name not in map(registered_name, metrics):
            metrics.append({'type': name})
    cfg[f'{split}_evaluator'] = metrics
    add_hook(cfg, 'TrainingCountsHook')


def prepare_for_device(cfg: Config) -> None:
    """Without CUDA, open the process group and replace what needs CUDA."""
    if torch.cuda.is_available():
        return  # the runner opens the process group
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
        join_ranks_on_cpu(cfg)
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


def join_ranks_on_cpu(cfg: Config) -> None:
    """Open the process group, which a Runner can open only with CUDA."""
    if is_distributed():
        return
    if cfg.launcher != 'pytorch' or 'RANK' not in os.environ:
        raise SettingError(
            'Without a GPU ranks are started by torchrun: torchrun '
            '--nproc_per_node=N -m mmseg_margin TOOL ... --launcher pytorch'
        )
    seconds = cfg.get('env_cfg', {}).get('dist_cfg', {}).get('timeout')
    distributed.init_process_group(
        'gloo', timeout=seconds and timedelta(seconds=seconds)
    )
    # Or a thread of gloo may abort the process when it ends.
    atexit.register(distributed.destroy_process_group)


def build_runner(cfg: Config, is_verbose: bool = False) -> Runner:
    """The runner of a config, with a quiet console unless verbose."""
    apply_patches()
    runner = (Runner if is_verbose else QuietRunner).from_cfg(cfg)
    runner.register_hook(ObjectiveHook())
    return runner
