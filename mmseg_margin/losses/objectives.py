"""Objectives by name, as ``--loss`` and ``SwapLossHook`` take them."""

import inspect
import re
from ast import literal_eval
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from mmseg.registry import MODELS

from mmseg_margin.config_tools import as_list, registered_name
from mmseg_margin.errors import SettingError
from mmseg_margin.functional.settings import OffsetSettings
from mmseg_margin.heads import heads_of_config

from .base import PixelLoss

Objective = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
Term = dict[str, Any]

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
    'dice': {'type': 'DiceLoss', 'use_sigmoid': False},
    'tversky': {'type': 'TverskyLoss'},
    'jml': {'type': 'JaccardMetricLoss'},
}
RENAMED = {'margin-paper': 'margin'}
EXAMPLES = 'margin:tau=20, ce:0.5+lovasz:0.5 or ce:class_weight=[1,2,2]'
# The plus of a sum is followed by a name, that of 1e+3 by a digit.
PLUS = re.compile(r'\+(?=[A-Za-z])')
COMMA_OUTSIDE_BRACKETS = re.compile(r',(?![^\[(]*[\])])')


def parse_objective(objective: Objective) -> list[Term]:
    """The loss configs of an objective: one, or the terms of a sum.

    Args:
        objective: ``NAME``, ``NAME:weight,key=value,...``, several of these
            joined by a plus, a loss config, or a list of loss configs.

    Example:
        >>> parse_objective('focal:0.5,gamma=1.5')
        [{'type': 'SoftmaxFocalLoss', 'loss_weight': 0.5, 'gamma': 1.5}]
    """
    if isinstance(objective, str):
        terms = [_parse(term, objective) for term in PLUS.split(objective)]
    else:
        terms = [dict(term) for term in as_list(objective)]
    # mmseg sums terms of the same name; the log should show every term.
    names = [_loss_name(term) for term in terms]
    count = Counter(names)
    for place, (term, name) in enumerate(zip(terms, names, strict=True)):
        if count[name] > 1:
            term['loss_name'] = f'{name}_{place}'
    return terms


def losses_of_config(cfg: Mapping[str, Any]) -> list[Term]:
    """The losses that a config trains with: the swapped ones, or its own."""
    hooks = [
        hook
        for hook in as_list(cfg.get('custom_hooks'))
        if registered_name(hook) == 'SwapLossHook'
    ]
    if hooks:
        return parse_objective(hooks[-1].get('loss', 'margin'))
    heads = heads_of_config(cfg.get('model') or {}).values()
    return [
        dict(loss)
        for head in heads
        for loss in as_list(head.get('loss_decode'))
    ]


def offset_settings(cfg: Mapping[str, Any]) -> OffsetSettings | None:
    """The settings of the first loss with offsets from the data set."""
    for term in losses_of_config(cfg):
        is_margin = registered_name(term) == 'MarginCalibrationLoss'
        if is_margin and term.get('class_counts') is None:
            return build_loss(term).offset_settings
    return None


def _loss_type(term: Term) -> type:
    kind = term.get('type')
    found = MODELS.get(kind) if isinstance(kind, str) else kind
    if found is None:
        raise SettingError(
            f'The loss {term} has no type that MMSegmentation knows.'
        )
    return found


def _loss_name(term: Term) -> Any:
    named = inspect.signature(_loss_type(term)).parameters.get('loss_name')
    return term.get('loss_name', named and named.default)


def build_loss(term: Term) -> Any:
    """Build the loss of one term; an error names the bad setting."""
    settings = dict(term)
    settings.pop('type', None)
    loss_type = _loss_type(term)
    parameters = inspect.signature(loss_type).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for key in settings:
        if key not in parameters and not takes_any:
            raise SettingError(
                f'{loss_type.__name__} has no setting {key!r}: it has '
                f'{", ".join(parameters)}.'
            )
    if not isinstance(settings.get('loss_weight', 1.0), int | float):
        raise SettingError(
            f'loss_weight={settings["loss_weight"]!r} must be a number.'
        )
    try:
        return loss_type(**settings)
    except SettingError:
        raise
    except (AssertionError, TypeError, ValueError) as error:
        raise SettingError(_cannot_work(term, error)) from error


def _parse(text: str, objective: str) -> Term:
    name, _, settings = text.partition(':')
    if name in RENAMED:
        raise SettingError(
            f'The objective {name} is now called {RENAMED[name]}.'
        )
    if name not in OBJECTIVES:
        raise SettingError(
            f'The objective {objective!r} is not known: take one of '
            f'{", ".join(OBJECTIVES)}, with settings or as a sum: {EXAMPLES}.'
        )
    term = dict(OBJECTIVES[name])
    for place, setting in enumerate(
        filter(None, COMMA_OUTSIDE_BRACKETS.split(settings))
    ):
        key, equals, value = setting.partition('=')
        if equals:
            term[key] = _literal_or_text(value)
        elif place == 0 and isinstance(_literal_or_text(key), int | float):
            term['loss_weight'] = _literal_or_text(key)
        else:
            raise SettingError(
                f'The objective {objective!r} has a setting without a value: '
                f'write NAME:weight,key=value,... as in {EXAMPLES}.'
            )
    return term


def _literal_or_text(value: str) -> Any:
    try:
        return literal_eval(value)
    except (ValueError, SyntaxError):
        return value


def try_loss(term: Term) -> Any:
    """Build a loss, and call it once to find settings of a wrong type."""
    loss = build_loss(term)
    if isinstance(loss, PixelLoss):
        return loss
    num_classes = len(getattr(loss, 'class_weight', None) or range(2))
    scores = torch.zeros(1, num_classes, 2, 2)
    try:
        loss(scores, torch.zeros(1, 2, 2, dtype=torch.long), ignore_index=255)
    except (AssertionError, LookupError, TypeError, ValueError) as error:
        raise SettingError(_cannot_work(term, error)) from error
    return loss


def _cannot_work(term: Term, error: Exception) -> str:
    settings = {key: value for key, value in term.items() if key != 'type'}
    return f'The loss {term["type"]} cannot work with {settings}: {error}'
