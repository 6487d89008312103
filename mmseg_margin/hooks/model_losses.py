"""The losses of a model: their statistics, class weights and states.

Losses are found by what they can do, under any wrapper: ``set_class_stats``
or ``set_class_counts`` to receive statistics, ``training_state`` and
``load_training_state`` to survive a resume.
"""

import logging
from collections.abc import Sequence
from typing import Any

from mmengine.logging import print_log
from mmseg.models.losses import CrossEntropyLoss
from torch import nn

from mmseg_margin.compat import weight_cross_entropy
from mmseg_margin.losses.weighted_cross_entropy_loss import (
    weighted_cross_entropy,
)
from mmseg_margin.stats import ClassStats
from mmseg_margin.walks import heads_of_model, modules, predicts_boundaries


def announce_classes(model: nn.Module) -> None:
    """Tell the losses of each head how many classes it has."""
    for head in heads_of_model(model).values():
        for module in head.modules():
            if callable(getattr(module, 'expect_classes', None)):
                module.expect_classes(head.num_classes)


def give_stats(
    model: nn.Module, stats: ClassStats, labels_checked: bool = False
) -> list[Any]:
    """Give every module that accepts them the statistics; returns those.

    A loss with an attribute ``labels_checked`` is told whether every label of
    the data set is known to be valid.
    """
    receivers = []
    for _, module in modules(model):
        if callable(getattr(module, 'set_class_stats', None)):
            module.set_class_stats(stats)
        elif callable(getattr(module, 'set_class_counts', None)):
            module.set_class_counts(stats.counts)
        else:
            continue
        if hasattr(module, 'labels_checked'):
            module.labels_checked = labels_checked
        receivers.append(module)
    return receivers


def set_class_weights(model: nn.Module, weights: Sequence[float]) -> None:
    """Set the class weights of mmseg's softmax cross-entropy losses."""
    # Such heads have two classes of their own.
    boundaries = tuple(
        f'{name}.'
        for name, head in heads_of_model(model).items()
        if predicts_boundaries(head)
    )
    for name, module in modules(model):
        is_ce = isinstance(module, CrossEntropyLoss)
        if not is_ce or name.startswith(boundaries):
            continue
        if module.use_sigmoid or module.use_mask:
            _warn(f'{name} is not a softmax cross-entropy')
        elif not weight_cross_entropy(module, weights, weighted_cross_entropy):
            _warn(f'{name} has a class_weight of its own')


def margin_settings(receivers: Sequence[Any]) -> dict[str, float]:
    """``tau`` and ``upsilon`` of the first loss that has them."""
    for loss in receivers:
        if hasattr(loss, 'tau') and hasattr(loss, 'upsilon'):
            return {'tau': loss.tau, 'upsilon': loss.upsilon}
    return {}


def training_states(model: nn.Module) -> dict[str, Any]:
    """The running state of all losses that have one, by module name."""
    return {
        name: module.training_state()
        for name, module in modules(model)
        if callable(getattr(module, 'training_state', None))
    }


def load_training_states(model: nn.Module, states: dict[str, Any]) -> None:
    """The inverse of :func:`training_states`; strangers are left alone."""
    for name, module in modules(model):
        loads_state = callable(getattr(module, 'load_training_state', None))
        if loads_state and name in states:
            module.load_training_state(states[name])


def _warn(reason: str) -> None:
    print_log(
        f'{reason}: ClassStatsHook leaves its class weights alone.',
        logger='current',
        level=logging.WARNING,
    )
