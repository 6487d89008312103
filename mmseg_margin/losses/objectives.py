"""Objectives by name, as ``--loss`` and ``SwapLossHook`` take them."""

import inspect
import math
import re
from ast import literal_eval
from collections.abc import Mapping, Sequence
from typing import Any

from mmseg.registry import MODELS

from mmseg_margin.config_tools import as_list
from mmseg_margin.errors import SettingError, did_you_mean

from .base import check_name_and_weight

Objective = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
Term = dict[str, Any]

DEFAULT = 'jaccard'
# Upstream's losses, with the settings that they need (Lovasz over the batch
# needs reduction='none'), and ours where upstream's fail.
OBJECTIVES: dict[str, Term] = {
    'jaccard': {'type': 'JaccardLoss'},
    'margin': {'type': 'MarginCalibrationLoss'},
    'margin-authors': {'type': 'MarginCalibrationLoss', 'preset': 'authors'},
    'ce': {'type': 'CrossEntropyLoss'},
    'wce': {'type': 'WeightedCrossEntropyLoss', 'class_weight': 'median'},
    'focal': {'type': 'SoftmaxFocalLoss'},
    'wfocal': {'type': 'SoftmaxFocalLoss', 'class_weight': 'median'},
    'lovasz': {'type': 'LovaszLoss', 'reduction': 'none'},
    'jml': {'type': 'RegionLoss', 'alpha': 1.0, 'beta': 1.0},
    'dice': {'type': 'RegionLoss', 'alpha': 0.5, 'beta': 0.5},
    'tversky': {'type': 'RegionLoss', 'alpha': 0.3, 'beta': 0.7},
}
EXAMPLES = 'margin:tau=20, ce:0.5+lovasz:0.5 or ce:class_weight=[1,2,2]'
# The plus of a sum is followed by a name, that of 1e+3 by a digit.
PLUS = re.compile(r'\+(?=[A-Za-z])')
WORDS = {'true': True, 'false': False, 'none': None}
COMMA_OUTSIDE_BRACKETS = re.compile(r',(?![^\[(]*[\])])')


def parse_objective(objective: Objective) -> list[Term]:
    """The loss configs of an objective: one, or the terms of a sum.

    Each is built once, so that a mistake in it is found here.

    Args:
        objective: ``NAME``, ``NAME:weight,key=value,...``, several of these
            joined by a plus, a loss config, or a list of loss configs.

    Example:
        >>> parse_objective('focal:0.5,gamma=1.5')
        [{'type': 'SoftmaxFocalLoss', 'loss_weight': 0.5, 'gamma': 1.5}]
    """
    if isinstance(objective, str):
        terms = [_parse_term(text) for text in PLUS.split(objective)]
    else:
        terms = [dict(term) for term in as_list(objective)]
    if not terms:
        raise SettingError(f'The objective {objective!r} has no terms.')
    for term in terms:
        build_loss(term)
    return terms


def build_loss(term: Term) -> Any:
    """Build the loss of one term; an error names the bad setting."""
    settings = dict(term)
    kind = settings.pop('type', None)
    loss_type = MODELS.get(kind) if isinstance(kind, str) else kind
    if loss_type is None:
        raise SettingError(
            f'The loss {term} has no type that MMSegmentation knows.'
        )
    known: dict[str, inspect.Parameter] = {}
    for base in reversed(loss_type.__mro__[:-2]):  # from nn.Module on
        known |= inspect.signature(base).parameters
    known.pop('kwargs', None)
    for name, value in settings.items():
        if name not in known:
            raise SettingError(
                f'{loss_type.__name__} has no setting {name!r}, but '
                f'{", ".join(known)}.{did_you_mean(name, known)}'
            )
        _check_type(name, value, known[name].default)
    try:
        loss = loss_type(**settings)
    except (AssertionError, OSError, TypeError, ValueError) as error:
        raise SettingError(
            f'{loss_type.__name__} cannot work with {settings}: {error}'
        ) from error
    check_name_and_weight(loss)
    return loss


def _check_type(name: str, value: Any, default: Any) -> None:
    """Raise on a value that the loss would misread without a word."""
    if name == 'loss_weight':
        due = 'a positive number'
        fits = _is_number(value) and 0 < value < math.inf
    elif isinstance(default, bool):
        due, fits = 'true or false', isinstance(value, bool)
    else:
        due = 'a number'
        fits = not (_is_number(default) and isinstance(value, str | bool))
    if not fits:
        raise SettingError(f'{name}={value!r} must be {due}.')


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _parse_term(text: str) -> Term:
    name, _, settings = text.partition(':')
    if name not in OBJECTIVES:
        raise SettingError(
            f'The objective {name!r} is not known: take one of '
            f'{", ".join(OBJECTIVES)}, with settings or as a sum '
            f'({EXAMPLES}).{did_you_mean(name, OBJECTIVES)}'
        )
    term = dict(OBJECTIVES[name])
    every = [x for x in COMMA_OUTSIDE_BRACKETS.split(settings) if x]
    if every and _is_number(_parse_value(every[0])):
        every[0] = f'loss_weight={every[0]}'
    for setting in every:
        key, equals, value = setting.partition('=')
        if not equals:
            raise SettingError(
                f'The objective {text!r} has a setting without a value: '
                f'write NAME:weight,key=value,... as in {EXAMPLES}.'
            )
        # The reduction is called none.
        term[key] = value if key == 'reduction' else _parse_value(value)
    return term


def _parse_value(text: str) -> Any:
    """Numbers, lists and words, and true, False and none in any case."""
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    try:
        return literal_eval(text)
    except (SyntaxError, TypeError, ValueError):
        return text
