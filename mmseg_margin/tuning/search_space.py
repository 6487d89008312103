"""What is searched, which settings are tried first and which come next."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
)
from optuna.exceptions import ExperimentalWarning
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from mmseg_margin.config_tools import registered_name
from mmseg_margin.errors import SettingError
from mmseg_margin.functional import OffsetSettings
from mmseg_margin.losses.margin_calibration_loss import (
    OFFSET_SETTINGS,
    expand_preset,
)
from mmseg_margin.losses.objectives import parse_objective

Setting = dict[str, Any]

CLASSES = {'jaccard': 'JaccardLoss', 'margin': 'MarginCalibrationLoss'}
# The first choice of each is the default of the loss.
CHOICES: dict[str, tuple] = {
    'objective': (*CLASSES,),
    'ce_weight': (1.0, 0.3, 0.0),
    'ce_ramp': (2.0, 0.0),
    'softness': (0.0, 1.0),
    'pos_weight': (1.0, 'num_classes'),
    'log_base': (2, 'e'),
    'class_mean': (False, True),
    'class_weight': (None, 0.15, 'sqrt'),
}
# Searched by factors; an offset of 0.01 has the effect of none.
LARGEST_OFFSET = (0.01, 10.0)
RANGES = ('largest_offset', 'upsilon')
PARAMETERS = {
    'jaccard': ('ce_weight', 'ce_ramp', 'softness', 'class_weight'),
    'margin': (
        *('pos_weight', 'log_base', 'class_mean', 'class_weight'),
        *RANGES,
    ),
}
# Tried in this order, the most valuable first.
FIRST = ('jaccard', 'margin-authors', 'margin')
# What both losses have, and a trial keeps of the config's own loss.
SHARED = ('avg_non_ignore', 'backend', 'reduction')


class SearchSpace:
    """All settings that a search may try instead of a config's own loss.

    Raises:
        SettingError: If Algorithm 1 has no offsets for this loss.
    """

    def __init__(
        self,
        own: Mapping[str, Any],
        class_counts: Sequence[int],
        seed: int = 0,
    ) -> None:
        self.own, self.seed = dict(own), seed
        # By name; the config's own setting only if it is another.
        self.first: dict[str, Setting] = {}
        losses = {name: parse_objective(name)[0] for name in FIRST}
        for name, loss in (*losses.items(), ("the config's own", self.own)):
            kept = self._kept(registered_name(loss))
            setting = setting_of(kept | loss, class_counts)
            if setting not in self.first.values():
                self.first[name] = setting
        # The smallest upsilon for which every mu_k is positive.
        n, total = np.asarray(class_counts, float), sum(class_counts)
        smallest = (n / total / np.sqrt(total - n)).max()
        values_of = CHOICES | {
            'largest_offset': LARGEST_OFFSET,
            'upsilon': (1.1 * smallest, 1.0),
        }
        self.distributions: dict[str, BaseDistribution] = {}
        for name, values in values_of.items():
            # Widened to hold the first settings.
            found = [s[name] for s in self.first.values() if name in s]
            values = tuple(dict.fromkeys([*values, *found]))
            self.distributions[name] = (
                CategoricalDistribution(values)
                if name in CHOICES
                else FloatDistribution(min(values), max(values), log=True)
            )

    def loss(self, setting: Setting) -> dict[str, Any]:
        """A loss config; what is not searched is that of the config's own."""
        given = {k: v for k, v in setting.items() if k != 'objective'}
        kind = CLASSES[setting['objective']]
        return {**self._kept(kind), 'type': kind, **given}

    def choose(self, trials: Sequence[FrozenTrial]) -> FrozenTrial:
        """The trial that comes after these, waiting to be run."""
        first = list(self.first.values())
        if len(trials) < len(first):
            setting = first[len(trials)]
        else:
            # In memory, because a stored trial gets its values one by one,
            # and its process may die in between.
            sampler = _sampler(self.seed, len(trials))
            study = optuna.create_study(direction='maximize', sampler=sampler)
            study.add_trials(trials)
            setting = self.suggest(study.ask())
        return create_trial(
            state=TrialState.WAITING,
            params=setting,
            distributions={k: self.distributions[k] for k in setting},
        )

    def suggest(self, trial: Trial) -> Setting:
        """The setting of a trial: only what its loss has."""
        setting: Setting = {}
        names = ['objective']
        for name in names:
            match self.distributions[name]:
                case CategoricalDistribution(choices=choices):
                    setting[name] = trial.suggest_categorical(name, choices)
                case FloatDistribution(low=a, high=b):
                    setting[name] = trial.suggest_float(name, a, b, log=True)
            if name == 'objective':
                names += PARAMETERS[setting[name]]
        return setting

    def _kept(self, kind: str) -> dict[str, Any]:
        """What a loss of some class keeps of the config's own loss."""
        if registered_name(self.own) == kind:
            searched = {*CHOICES, *RANGES, 'tau', 'preset', 'type'}
            return {k: v for k, v in self.own.items() if k not in searched}
        kept = {k: self.own[k] for k in SHARED if k in self.own}
        # The config cannot say what becomes of absent classes.
        absent = {'absent_class': 'zero'} if kind == CLASSES['margin'] else {}
        return kept | absent


def setting_of(
    loss: Mapping[str, Any], class_counts: Sequence[int]
) -> Setting:
    """The searched parameters of a loss config, its defaults included."""
    loss = expand_preset(loss)
    name = next(k for k, v in CLASSES.items() if v == registered_name(loss))
    if isinstance(loss.get('class_weight'), (list, tuple)):
        raise SettingError(
            'The config gives class_weight as a list, which cannot be tuned: '
            "name a method there, for example class_weight='sqrt'."
        )
    values = {key: choices[0] for key, choices in CHOICES.items()} | loss
    if name == 'margin':
        given = {key: loss[key] for key in OFFSET_SETTINGS if key in loss}
        settings = OffsetSettings(**given)
        largest = float(max(settings.offsets(class_counts).rho_0k))
        values['largest_offset'] = max(largest, LARGEST_OFFSET[0])
        values['upsilon'] = settings.upsilon
    return {'objective': name, **{k: values[k] for k in PARAMETERS[name]}}


def _sampler(seed: int, number: int) -> optuna.samplers.TPESampler:
    """For one trial, so that a search can be interrupted and repeated."""
    words = np.random.SeedSequence((seed, number)).generate_state(1)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', ExperimentalWarning)
        return optuna.samplers.TPESampler(
            seed=int(words[0]),
            multivariate=True,
            # The losses have different parameters.
            group=True,
            # Processes that run at the same time shall not try the same.
            constant_liar=True,
        )


def setting_text(setting: Mapping[str, Any]) -> str:
    """``objective=margin, pos_weight=1, ...``"""
    return ', '.join(f'{k}={value_text(v)}' for k, v in setting.items())


def value_text(value: Any) -> str:
    return f'{value:.4g}' if isinstance(value, float) else str(value)
