"""What is searched, and which settings are tried first."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
)
from optuna.trial import Trial

from mmseg_margin.config_tools import registered_name
from mmseg_margin.errors import SettingError
from mmseg_margin.functional import OffsetSettings
from mmseg_margin.losses.margin_calibration_loss import (
    OFFSET_SETTINGS,
    expand_preset,
)
from mmseg_margin.losses.objectives import parse_objective

Setting = dict[str, Any]
Space = dict[str, BaseDistribution]

# The losses that are searched, and the parameters of each.
PARAMETERS = {
    'jaccard': ('ce_weight', 'ce_ramp', 'class_weight'),
    'margin': (
        'pos_weight',
        'log_base',
        'class_mean',
        'class_weight',
        'largest_offset',
        'upsilon',
    ),
}
CLASSES = {'jaccard': 'JaccardLoss', 'margin': 'MarginCalibrationLoss'}
# The first choice of each is the default of the loss.
CHOICES: dict[str, tuple] = {
    'objective': tuple(PARAMETERS),
    'ce_weight': (1.0, 0.3, 0.0),
    'ce_ramp': (2.0, 0.0),
    'class_weight': (None, 0.15, 'sqrt'),
    'pos_weight': (1.0, 'num_classes'),
    'log_base': (2, 'e'),
    'class_mean': (False, True),
}
# Searched by factors; an offset of 0.01 has the effect of none.
LARGEST_OFFSET = (0.01, 10.0)
# Tried in this order, the most valuable first.
FIRST = ('jaccard', 'margin-authors', 'margin')
# What both losses have, and a trial keeps of the config's own loss.
SHARED = ('avg_non_ignore', 'backend', 'reduction')


def setting_of(
    loss: Mapping[str, Any], class_counts: Sequence[int]
) -> Setting:
    """The searched parameters of a loss config, its defaults included.

    Raises:
        SettingError: If Algorithm 1 has no offsets for this loss.
    """
    loss = expand_preset(loss)
    name = next(k for k, v in CLASSES.items() if v == registered_name(loss))
    if isinstance(loss.get('class_weight'), (list, tuple)):
        raise SettingError(
            'The config gives class_weight as a list, which cannot be tuned: '
            "name a method there, for example class_weight='sqrt'."
        )
    values = {key: CHOICES[key][0] for key in CHOICES} | loss
    if name == 'margin':
        given = {key: loss[key] for key in OFFSET_SETTINGS if key in loss}
        settings = OffsetSettings(**given)
        largest = float(max(settings.offsets(class_counts).rho_0k))
        values['largest_offset'] = max(largest, LARGEST_OFFSET[0])
        values['upsilon'] = settings.upsilon
    return {'objective': name, **{k: values[k] for k in PARAMETERS[name]}}


def first_settings(
    own: Mapping[str, Any], class_counts: Sequence[int]
) -> dict[str, Setting]:
    """The named objectives, and the config's own setting if it is another."""
    losses = {name: parse_objective(name)[0] for name in FIRST}
    losses["the config's own"] = dict(own)
    settings: dict[str, Setting] = {}
    for name, loss in losses.items():
        kept = _kept(own, registered_name(loss))
        setting = setting_of({**kept, **loss}, class_counts)
        if setting not in settings.values():
            settings[name] = setting
    return settings


def loss_with(own: Mapping[str, Any], setting: Setting) -> dict[str, Any]:
    """A loss config with a setting; what is not searched is the config's."""
    kind = CLASSES[setting['objective']]
    given = {k: v for k, v in setting.items() if k != 'objective'}
    return {**_kept(own, kind), 'type': kind, **given}


def search_space(
    settings: Sequence[Setting], class_counts: Sequence[int]
) -> Space:
    """All choices and ranges, widened to hold the first settings."""
    found = {
        name: [setting[name] for setting in settings if name in setting]
        for name in (*CHOICES, 'largest_offset', 'upsilon')
    }
    space: Space = {
        name: CategoricalDistribution(
            tuple(dict.fromkeys([*choices, *found[name]]))
        )
        for name, choices in CHOICES.items()
    }
    # The smallest upsilon for which every mu_k is positive.
    counts = np.asarray(class_counts, float)
    smallest = (counts / counts.sum() / np.sqrt(counts.sum() - counts)).max()
    for name, ends in (
        ('largest_offset', LARGEST_OFFSET),
        ('upsilon', (1.1 * smallest, 1.0)),
    ):
        values = (*ends, *found[name])
        space[name] = FloatDistribution(min(values), max(values), log=True)
    return space


def suggest(trial: Trial, space: Space) -> Setting:
    """The setting of a trial: only what its loss has."""
    setting: Setting = {}
    names = ['objective']
    for name in names:
        match space[name]:
            case CategoricalDistribution(choices=choices):
                setting[name] = trial.suggest_categorical(name, choices)
            case FloatDistribution(low=low, high=high):
                setting[name] = trial.suggest_float(name, low, high, log=True)
        if name == 'objective':
            names += PARAMETERS[setting[name]]
    return setting


def setting_text(setting: Mapping[str, Any]) -> str:
    """``objective=margin, pos_weight=1, ...``"""
    return ', '.join(f'{k}={value_text(v)}' for k, v in setting.items())


def value_text(value: Any) -> str:
    return f'{value:.4g}' if isinstance(value, float) else str(value)


def _kept(own: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """What a loss of some class keeps of the config's own loss."""
    searched = {*CHOICES, 'largest_offset', 'tau', 'upsilon', 'preset', 'type'}
    if registered_name(own) != kind:
        kept = {k: own[k] for k in SHARED if k in own}
        # The config cannot say what becomes of absent classes.
        absent = {'absent_class': 'zero'} if kind == CLASSES['margin'] else {}
        return kept | absent
    return {k: v for k, v in own.items() if k not in searched}
