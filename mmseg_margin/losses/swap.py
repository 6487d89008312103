"""Replaces the losses of a segmentor's heads."""

import logging
from collections.abc import Sequence
from typing import Any

from mmengine.config import Config
from mmseg.models.decode_heads import IterativeDecodeHead, PointHead
from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from mmseg.models.losses import LovaszLoss
from torch import nn

from mmseg_margin.config_tools import add_hook
from mmseg_margin.errors import SettingError
from mmseg_margin.heads import (
    HEADS,
    heads_of_model,
    modules,
    predicts_boundaries,
)

from .baselines import RegionLoss
from .objectives import Objective, Term, build_loss, parse_objective

# Decode heads of mmseg without a score for each pixel and class, and those
# that call their losses by position.
REFUSED = ('SideAdapterCLIPHead', 'VPDDepthHead', 'PIDHead', 'DDRHead')


def set_objective(
    cfg: Config, objective: Objective, heads: str | Sequence[str] | None = None
) -> None:
    """Let a config train its heads with an objective in place of its own.

    The config's model is not changed, so that any tool can test, deploy and
    resume with the saved config.
    """
    parse_objective(objective)  # finds mistakes before anything is built
    add_hook(cfg, 'SwapLossHook', loss=objective, heads=heads)
    # Checks the labels too, so it is added for every objective.
    add_hook(cfg, 'ClassStatsHook')


def swap_losses(
    model: nn.Module, terms: Sequence[Term], only: Sequence[str] = ()
) -> list[str]:
    """Give the semantic heads of a model one objective; returns their names.

    The weight of a head's cross-entropy, or else of its first loss, is kept.

    Raises:
        SettingError: If no head can be given the objective, or if one of
            those that were named, or of all, cannot.
    """
    wanted = tuple(f'{name}.' for name in only) or ''
    swapped = []
    for name, head in modules(model):
        is_head = isinstance(head, BaseDecodeHead) or name in HEADS
        if not is_head or not f'{name}.'.startswith(wanted):
            continue
        # A list of heads, a head that is trained through its inner head, and
        # one with other classes.
        skipped = isinstance(head, nn.ModuleList | IterativeDecodeHead)
        if skipped or predicts_boundaries(head):
            continue
        _set_losses(name, head, terms)
        swapped.append(name)
    if not swapped:
        raise SettingError(
            f'The model has no {" or ".join(only or HEADS)} that could be '
            'given another loss: name its heads as in its config.'
        )
    return swapped


def _set_losses(name: str, head: Any, terms: Sequence[Term]) -> None:
    kind = type(head).__name__
    if not isinstance(head, BaseDecodeHead) or kind in REFUSED:
        raise SettingError(
            f'{name} is a {kind}, which does not take one loss of a score for '
            'each pixel and class: write its losses into the config, without '
            '--loss and SwapLossHook, or name other heads (heads=).'
        )
    if head.out_channels == 1:
        raise SettingError(
            f'{name} has one channel, and the losses need a score for each '
            'class: set out_channels=2.'
        )
    losses = [build_loss(term) for term in terms]
    samples = isinstance(head, PointHead) or head.sampler is not None
    if samples and any(isinstance(x, RegionLoss | LovaszLoss) for x in losses):
        raise SettingError(
            f'{name} trains on chosen pixels only, and its new loss needs '
            'whole images: take another loss, or the sampler out of the head.'
        )
    # False, the cross-entropy, is sorted before True.
    old = min(
        losses_of(head), key=lambda x: 'CrossEntropy' not in type(x).__name__
    )
    for loss in losses:
        loss.loss_weight *= getattr(old, 'loss_weight', 1.0)
    new = losses[0] if len(losses) == 1 else nn.ModuleList(losses)
    head.loss_decode = new.to(next(head.parameters()).device)


def losses_of(head: Any) -> list[Any]:
    """The losses of a head, which may be one or several."""
    losses = head.loss_decode
    return list(losses) if isinstance(losses, nn.ModuleList) else [losses]


def attach_to_runner(runner: Any) -> None:
    """Let the losses take the progress of this Runner, and log to its hub."""
    hub = runner.message_hub
    for name, head in heads_of_model(runner.model).items():
        # As mmseg calls them in the log: decode, aux, aux_0.
        prefix = name.replace('decode_head', 'decode')
        prefix = prefix.replace('auxiliary_head', 'aux').replace('.', '_')
        for _, loss in modules(head):
            if hasattr(loss, 'follow') and loss.follow(hub, prefix):
                logging.getLogger('mmseg_margin').info(
                    f'{name}: the logged loss rises by design, because the '
                    f'weight of its cross-entropy grows; {prefix}.jaccard '
                    'falls.'
                )
