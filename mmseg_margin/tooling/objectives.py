"""``--loss``: another objective for every head of any config."""

import inspect
from ast import literal_eval
from typing import Any

from mmengine.config import Config, ConfigDict
from mmengine.registry import init_default_scope
from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from mmseg.registry import MODELS

from mmseg_margin.errors import SettingError
from mmseg_margin.losses.presets import KNOWN as SETTINGS_OF_MARGIN
from mmseg_margin.walks import add_hook, as_list, heads_of_config

# Upstream's with the settings that make them work (Lovasz over the batch needs
# reduction='none'), ours where upstream's fails.
OBJECTIVES: dict[str, dict] = {
    'margin': {'type': 'MarginCalibrationLoss'},
    'ce': {'type': 'CrossEntropyLoss', 'avg_non_ignore': True},
    'wce': {'type': 'WeightedCrossEntropyLoss', 'class_weight': 'median'},
    'focal': {'type': 'SoftmaxFocalLoss'},
    'lovasz': {'type': 'LovaszLoss', 'reduction': 'none'},
    'dice': {'type': 'DiceLoss', 'use_sigmoid': False},
    'tversky': {'type': 'TverskyLoss'},
}
NEED_STATISTICS = ('margin', 'wce')


def loss_config(objective: str) -> dict[str, Any]:
    """The loss of an objective, which may have settings of its own.

    Example:
        >>> loss_config('focal:gamma=1.5')
        {'type': 'SoftmaxFocalLoss', 'gamma': 1.5}
    """
    name, _, settings = objective.partition(':')
    if name not in OBJECTIVES:
        raise SettingError(
            f'The objective {objective!r} is not known: take one of '
            f'{", ".join(OBJECTIVES)}, with settings as in margin:tau=20.'
        )
    config = dict(OBJECTIVES[name])
    for setting in filter(None, settings.split(',')):
        key, equals, value = setting.partition('=')
        if not equals:
            raise SettingError(
                f'The objective {objective!r} has a setting without a value: '
                'write NAME:key=value,key=value.'
            )
        config[key] = _literal_or_text(value)
        _check_setting(config['type'], key)
    return config


def _check_setting(loss: str, key: str) -> None:
    known = [*inspect.signature(MODELS.get(loss)).parameters]
    if 'settings' in known:
        known[-1:] = SETTINGS_OF_MARGIN
    if key not in known:
        raise SettingError(
            f'{loss} has no setting {key!r}: it has {", ".join(known)}.'
        )


def swap_loss(cfg: Config, objective: str) -> None:
    """Give every decode and auxiliary head one objective; keep its weight."""
    replace_losses(cfg, loss_config(objective))
    if objective.partition(':')[0] in NEED_STATISTICS:
        add_hook(cfg, 'ClassStatsHook')


def replace_losses(cfg: Config, loss: dict[str, Any]) -> None:
    """Give every decode and auxiliary head one loss; keep its weight."""
    init_default_scope(cfg.get('default_scope', 'mmseg'))
    heads = heads_of_config(cfg.model).values()
    if not heads:
        raise SettingError(
            '--loss found no decode_head in the model: it swaps the '
            'objective of segmentors with pixel-wise heads.'
        )
    for head in heads:
        _check_head(head)
        head.loss_decode = ConfigDict(loss, loss_weight=_loss_weight(head))


def _check_head(head: ConfigDict) -> None:
    head_type = (
        MODELS.get(head.type) if isinstance(head.type, str) else (head.type)
    )
    pixel_wise = isinstance(head_type, type) and issubclass(
        head_type, BaseDecodeHead
    )
    if not pixel_wise or head.get('out_channels') == 1:
        raise SettingError(
            f'--loss cannot change {head.type}: it has no scores for each '
            'pixel and class. Swap its losses in the config instead.'
        )


def _loss_weight(head: ConfigDict) -> float:
    losses = as_list(head.get('loss_decode'))
    return sum(loss.get('loss_weight', 1.0) for loss in losses) or 1.0


def _literal_or_text(value: str) -> Any:
    try:
        return literal_eval(value)
    except (ValueError, SyntaxError):
        return value
