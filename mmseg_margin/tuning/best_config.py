"""The best setting as a config to train with."""

import copy
import os
from pathlib import Path
from typing import Any

from mmengine.config import Config

from mmseg_margin.errors import SettingError
from mmseg_margin.hooks.swap_loss_hook import train_with
from mmseg_margin.walks import heads_of_config


def check_inheritable(cfg: Config) -> None:
    """Whether a config file can have this one as its base."""
    heads = heads_of_config(cfg.model).values()
    if not all(isinstance(head.type, str) for head in heads):
        raise SettingError(
            f'{cfg.filename} imports its classes, so no other config file '
            'can inherit it: write it out as one with '
            'mmengine.Config.fromfile(CONFIG).dump(FILE) and tune that.'
        )


def best_config_text(
    cfg: Config, loss: dict[str, Any], folder: Path, remark: str
) -> str:
    """A config that inherits the tuned one and changes only the objective.

    Args:
        cfg: The config that was tuned.
        loss: The loss config of every head, but for the weight.
        folder: Where the text will be.
        remark: One line for the top.
    """
    swapped = copy.deepcopy(cfg)
    train_with(swapped, loss)
    changes = {key: swapped[key] for key in ('custom_imports', 'custom_hooks')}
    base = os.path.relpath(cfg.filename, folder)
    return f'# {remark}\n_base_ = {base!r}\n{Config(changes).pretty_text}'
