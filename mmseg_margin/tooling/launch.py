"""From a config file to a runner, on a GPU or without one."""

import os
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config, ConfigDict
from mmengine.logging import print_log
from mmengine.runner import Runner
from mmseg.registry import RUNNERS

from mmseg_margin.errors import MissingFileError, SettingError
from mmseg_margin.walks import nodes, registered_name

from .progress import show_progress
from .ranks import init_distributed

# The name in mmcv's registry and that of the class.
SYNC_BN = ('SyncBN', 'SyncBatchNorm')
AMP = 'AmpOptimWrapper'
NO_CUDA = 'No CUDA device was found, so everything runs on the CPU'


def load_config(path: str, options: dict[str, Any] | None = None) -> Config:
    """Read a config, its ``mmseg::`` bases included, and override it."""
    if not Path(path).is_file():
        raise MissingFileError(
            f'The config {path} does not exist: give the path to a config '
            'file, for example one from configs/.'
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

    The work dir is the flag's, the config's, or named after the config.
    """
    os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    cfg = load_config(args.config, args.cfg_options)
    cfg.launcher = args.launcher
    default = os.path.join('work_dirs', Path(args.config).stem)
    cfg.work_dir = args.work_dir or cfg.get('work_dir') or default
    return cfg


def prepare_for_device(cfg: Config) -> None:
    """Let the ranks meet; without CUDA replace what needs it, and say so."""
    if torch.cuda.is_available():
        return  # the runner opens the process group
    init_distributed(cfg)
    changes = []
    sync_bn = [
        node
        for node in nodes(cfg.model)
        if 'type' in node and registered_name(node) in SYNC_BN
    ]
    for node in sync_bn:
        node.type = 'BN'
    if sync_bn:
        changes.append('SyncBN became BN')
    optimizer = cfg.get('optim_wrapper') or ConfigDict()
    if 'type' in optimizer and registered_name(optimizer) == AMP:
        optimizer.type = 'OptimWrapper'
        optimizer.pop('loss_scale', None)
        optimizer.pop('dtype', None)
        changes.append('mixed precision is off')
    if cfg.get('launcher', 'none') != 'none':
        cfg.setdefault('env_cfg', ConfigDict())
        cfg.env_cfg.setdefault('dist_cfg', ConfigDict())
        cfg.env_cfg.dist_cfg.backend = 'gloo'
        cfg.model_wrapper_cfg = ConfigDict(
            type='MMDistributedDataParallel',
            device_ids=None,
            broadcast_buffers=False,
            find_unused_parameters=cfg.get('find_unused_parameters', False),
        )
        changes.append('the ranks talk through gloo')
    if changes and os.environ.get('RANK', '0') == '0':
        print_log(f'{NO_CUDA}: {", ".join(changes)}.')


def build_runner(cfg: Config, is_verbose: bool = True) -> Runner:
    """The runner of a config, the config's own type if it names one."""
    make = RUNNERS.build if 'runner_type' in cfg else Runner.from_cfg
    runner = make(cfg)
    if not is_verbose:
        show_progress(runner)
    return runner
