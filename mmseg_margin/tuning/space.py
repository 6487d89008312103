"""What is tuned, where the search starts, and what it tries next."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
)
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial

from mmseg_margin.errors import SettingError
from mmseg_margin.losses.presets import PRESETS

Setting = dict[str, Any]
Space = dict[str, BaseDistribution]

PAPER: Setting = {
    'form': 'paper',
    'pos_weight': 1.0,
    'class_weight': None,
    'focus': 0.0,
    'tau': 10.0,
    'upsilon': 1.0,
}
CHOICES: dict[str, tuple] = {
    'form': ('paper', 'target', 'softmax'),
    'pos_weight': (1.0, 'num_classes'),
    'class_weight': (None, 0.15, 'sqrt'),
    'focus': (0.0, 1.0, 2.0),
}
# Both are scales, so they are searched by factors.
RANGES = {'tau': (0.1, 1000.0), 'upsilon': (0.01, 100.0)}


def setting_of(loss: dict[str, Any]) -> Setting:
    """The tuned parameters of a loss config, its defaults included."""
    if isinstance(loss.get('class_weight'), (list, tuple)):
        raise SettingError(
            'The config gives class_weight as a list, which cannot be tuned: '
            "name a method there, for example class_weight='sqrt'."
        )
    preset = PRESETS[loss.get('preset', 'paper')]
    return {name: {**PAPER, **preset, **loss}[name] for name in PAPER}


def search_space(starts: Sequence[Setting]) -> Space:
    """All choices and ranges, widened to hold the starting points."""
    space: Space = {}
    for name, choices in CHOICES.items():
        own = [start[name] for start in starts]
        space[name] = CategoricalDistribution(
            tuple(dict.fromkeys([*choices, *own]))
        )
    for name, limits in RANGES.items():
        values = [*limits, *(float(start[name]) for start in starts)]
        space[name] = FloatDistribution(min(values), max(values), log=True)
    return space


def next_setting(
    trials: Sequence[FrozenTrial], starts: Sequence[Setting], seed: int
) -> Setting:
    """What to try after these trials: first the starting points.

    The same trials give the same answer, in whatever process.
    """
    number = len(trials)
    if number < len(starts):
        return starts[number]
    words = np.random.SeedSequence((seed, number)).generate_state(1)
    sampler = TPESampler(
        seed=int(words[0]),
        multivariate=True,
        # Processes that run at the same time shall not try the same.
        constant_liar=True,
    )
    sketch = optuna.create_study(direction='maximize', sampler=sampler)
    sketch.add_trials(trials)
    return sketch.ask(search_space(starts)).params
