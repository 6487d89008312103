"""Objectives by name, as ``--loss`` and ``SwapLossHook`` take them."""

import inspect
import math
import re
from ast import literal_eval
from collections.abc import Mapping, Sequence
from typing import Any

from mmseg.registry import MODELS

from mmseg_margin.config_tools import as_list, registered_name
from mmseg_margin.errors import MarginError, SettingError, did_you_mean
from mmseg_margin.functional.settings import OffsetSettings
from mmseg_margin.heads import heads_of_config

from .base import check_loss_name, unknown_setting

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
    # mmseg sums terms of the same name; the log should show every term.
    names = [build_loss(term).loss_name for term in terms]
    for place, (term, name) in enumerate(zip(terms, names, strict=True)):
        if names.count(name) > 1:
            term['loss_name'] = f'{name}_{place}'
    return terms


def losses_of_config(cfg: Mapping[str, Any]) -> list[Term]:
    """The losses that a config trains with: the swapped ones, or its own."""
    for hook in reversed(as_list(cfg.get('custom_hooks'))):
        if registered_name(hook) == 'SwapLossHook':
            return parse_objective(hook.get('loss', DEFAULT))
    return [
        dict(loss)
        for head in heads_of_config(cfg.get('model') or {}).values()
        for loss in as_list(head.get('loss_decode'))
    ]


def offset_settings(cfg: Mapping[str, Any]) -> OffsetSettings | None:
    """The settings of the first loss with offsets from the data set."""
    for term in losses_of_config(cfg):
        is_margin = registered_name(term) == 'MarginCalibrationLoss'
        if is_margin and term.get('class_counts') is None:
            return build_loss(term).offset_settings
    return None


def build_loss(term: Term) -> Any:
    """Build the loss of one term; an error names the bad setting."""
    settings = dict(term)
    kind = settings.pop('type', None)
    loss_type = MODELS.get(kind) if isinstance(kind, str) else kind
    if loss_type is None:
        raise SettingError(
            f'The loss {term} has no type that MMSegmentation knows.'
        )
    parameters = inspect.signature(loss_type).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name, value in settings.items():
        if name in parameters:
            _check_type(name, value, parameters[name].default)
        elif not takes_any:
            raise unknown_setting(loss_type, name, parameters)
    try:
        loss = loss_type(**settings)
    except MarginError:
        raise
    except (AssertionError, OSError, TypeError, ValueError) as error:
        raise SettingError(
            f'{loss_type.__name__} cannot work with {settings}: {error}'
        ) from error
    check_loss_name(loss.loss_name)
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
