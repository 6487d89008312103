"""The best setting as a config to train with."""

import copy
import os
from pathlib import Path
from typing import Any

from mmengine.config import Config

from mmseg_margin.errors import SettingError
from mmseg_margin.tooling.objectives import replace_losses, swap_loss
from mmseg_margin.walks import HEADS, heads_of_config


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
    """A config that inherits the tuned one and changes only the losses.

    Args:
        cfg: The config that was tuned.
        loss: The loss config of every head, but for the weight.
        folder: Where the text will be.
        remark: One line for the top.
    """
    swapped = copy.deepcopy(cfg)
    swap_loss(swapped, 'margin')
    replace_losses(swapped, loss)
    imports = (cfg.get('custom_imports') or {}).get('imports', [])
    imports = [imports] if isinstance(imports, str) else list(imports)
    changes = {
        'custom_imports': {
            'imports': list(dict.fromkeys([*imports, 'mmseg_margin'])),
            'allow_failed_imports': False,
        },
        'custom_hooks': swapped.custom_hooks,
        'model': {
            key: _change(swapped.model[key])
            for key in HEADS
            if swapped.model.get(key)
        },
    }
    base = os.path.relpath(cfg.filename, folder)
    return f'# {remark}\n_base_ = {base!r}\n{Config(changes).pretty_text}'


def _change(head: Any) -> Any:
    """What differs in a head; a list of heads cannot be inherited in part."""
    if isinstance(head, (list, tuple)):
        return list(head)
    return {'loss_decode': {'_delete_': True, **head.loss_decode}}
