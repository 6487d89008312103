"""What is tuned, where the search starts, and what it tries next."""

import warnings
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
)
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from mmseg_margin.errors import SettingError
from mmseg_margin.losses.presets import PRESETS, SCALES, settings_of_config

Setting = dict[str, Any]
Space = dict[str, BaseDistribution]

OF_ALL = ('log_base', 'class_weight', 'largest_offset')
# What each form is tuned by, so that nothing is tried that has no effect.
PARAMETERS: dict[str, tuple[str, ...]] = {
    'paper': ('pos_weight', 'focus', *OF_ALL),
    'target': ('pos_weight', 'focus', *OF_ALL),
    'softmax': ('focus', *OF_ALL),
    'jaccard': ('log_share', 'log_delay', 'memory', 'batch_share', *OF_ALL),
}
CHOICES: dict[str, tuple] = {
    'form': tuple(PARAMETERS),
    'pos_weight': (1.0, 'num_classes'),
    'focus': (0.0, 1.0, 2.0),
    'log_share': (0.0, 0.3, 1.0),
    'log_delay': (0.0, 2.0),
    'memory': (0.0, 0.9, 0.98),
    'batch_share': (0.0, 0.5, 1.0),
    'log_base': (2, 'e'),
    'class_weight': (None, 0.15, 'sqrt'),
}
# A scale, so it is searched by factors.
LARGEST_OFFSET = (0.01, 10.0)


def setting_of(loss: dict[str, Any], class_counts: Sequence[int]) -> Setting:
    """The tuned parameters of a loss config, its defaults included."""
    own, offsets, class_weight = settings_of_config(loss)
    if isinstance(class_weight, (list, tuple)):
        raise SettingError(
            'The config gives class_weight as a list, which cannot be tuned: '
            "name a method there, for example class_weight='sqrt'."
        )
    # An absent class may be an error to the training; here it has no offset.
    offsets = replace(offsets, absent_class='zero')
    largest = float(max(offsets.offsets(class_counts).rho_0k))
    # Factors do not reach 0, and so small an offset is none.
    largest = largest or LARGEST_OFFSET[0]
    values = asdict(own) | dict(
        class_weight=class_weight, largest_offset=largest
    )
    return {name: values[name] for name in ('form', *PARAMETERS[own.form])}


def starting_points(
    loss: dict[str, Any], class_counts: Sequence[int]
) -> dict[str, Setting]:
    """Every preset, and the config's own setting if it is another."""
    losses = {f'preset {name}': {'preset': name} for name in PRESETS}
    starts: dict[str, Setting] = {}
    for name, each in {**losses, "the config's own": loss}.items():
        setting = setting_of(each, class_counts)
        if setting not in starts.values():
            starts[name] = setting
    return starts


def loss_with(loss: dict[str, Any], setting: Setting) -> dict[str, Any]:
    """A loss config with another setting, and nothing of its own one."""
    tuned = {*CHOICES, *SCALES}
    return {k: v for k, v in loss.items() if k not in tuned} | setting


def search_space(starts: Sequence[Setting]) -> Space:
    """All choices and ranges, widened to hold the starting points."""
    space: Space = {}
    for name, choices in CHOICES.items():
        own = [start[name] for start in starts if name in start]
        space[name] = CategoricalDistribution(
            tuple(dict.fromkeys([*choices, *own]))
        )
    offsets = [*LARGEST_OFFSET, *(start['largest_offset'] for start in starts)]
    space['largest_offset'] = FloatDistribution(
        min(offsets), max(offsets), log=True
    )
    return space


def propose(
    trials: Sequence[FrozenTrial], starts: Sequence[Setting], seed: int
) -> FrozenTrial:
    """What to try after these trials: first the starting points.

    The same trials give the same answer, in whatever process.
    """
    space, number = search_space(starts), len(trials)
    if number < len(starts):
        setting = starts[number]
    else:
        setting = _sample(trials, space, seed)
    return create_trial(
        state=TrialState.RUNNING,
        params=setting,
        distributions={name: space[name] for name in setting},
    )


def _sample(trials: Sequence[FrozenTrial], space: Space, seed: int) -> Setting:
    words = np.random.SeedSequence((seed, len(trials))).generate_state(1)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', ExperimentalWarning)
        sampler = TPESampler(
            seed=int(words[0]),
            multivariate=True,
            # The forms have different parameters.
            group=True,
            # Processes that run at the same time shall not try the same.
            constant_liar=True,
        )
    sketch = optuna.create_study(direction='maximize', sampler=sampler)
    sketch.add_trials(trials)
    trial = sketch.ask({'form': space['form']})
    for name in PARAMETERS[trial.params['form']]:
        match space[name]:
            case CategoricalDistribution(choices=choices):
                trial.suggest_categorical(name, choices)
            case FloatDistribution(low=low, high=high):
                trial.suggest_float(name, low, high, log=True)
    return trial.params


def value_text(value: Any) -> str:
    return f'{value:.4g}' if isinstance(value, float) else str(value)


def setting_text(setting: Setting) -> str:
    """``form=paper, focus=2, ...``"""
    return ', '.join(f'{k}={value_text(v)}' for k, v in setting.items())
