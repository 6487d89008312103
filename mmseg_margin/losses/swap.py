"""Replaces the losses of a segmentor's heads."""

import logging
from collections.abc import Sequence
from typing import Any

from mmengine.config import Config
from mmengine.logging import print_log
from mmseg.models.decode_heads import (
    DDRHead,
    IterativeDecodeHead,
    PIDHead,
    PointHead,
)
from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from mmseg.models.losses import CrossEntropyLoss, LovaszLoss
from torch import Tensor, nn

from mmseg_margin.config_tools import add_hook
from mmseg_margin.errors import SettingError
from mmseg_margin.heads import (
    HEADS,
    heads_of_model,
    modules,
    predicts_boundaries,
)

from .base import check_class_weight, two_class_scores
from .cross_entropy_losses import WeightedCrossEntropyLoss
from .objectives import Objective, Term, build_loss, parse_objective
from .region_loss import RegionLoss

# Heads that take losses from a list by position, and the positions that
# compare class scores with labels; the others learn boundaries.
SEMANTIC_PLACES = {PIDHead: (0, 1, 3), DDRHead: (0, 1)}
# Decode heads of mmseg without a score for each pixel and class.
REFUSED = ('SideAdapterCLIPHead', 'VPDDepthHead')


class LossSum(nn.ModuleList):
    """The sum of several losses, in the place of one."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return sum(loss(*args, **kwargs) for loss in self)


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
    model: nn.Module,
    terms: Sequence[Term],
    only: Sequence[str] = (),
) -> list[str]:
    """Give the semantic heads of a model one objective; returns their names.

    The weight of a head's cross-entropy, or else of its first loss, is kept.

    Raises:
        SettingError: If no head can be given the objective, or if one of
            those that were named, or of all, cannot.
    """
    found = {
        name: module
        for name, module in modules(model)
        if isinstance(module, BaseDecodeHead)
        or (name in HEADS and not isinstance(module, nn.ModuleList))
    }
    wanted = tuple(f'{name}.' for name in only)
    semantic = {
        name: head
        for name, head in found.items()
        if (not only or f'{name}.'.startswith(wanted))
        and not _keeps_losses(head)
    }
    if not semantic:
        raise SettingError(
            f'The model has no {" or ".join(only or HEADS)} that could be '
            f'given another loss: its heads are {", ".join(found) or "none"}.'
        )
    for name, head in semantic.items():
        kind = type(head).__name__
        if not isinstance(head, BaseDecodeHead) or kind in REFUSED:
            raise SettingError(
                f'{name} is a {kind}, which has no score for each pixel and '
                'class, so no other loss can be given to it: leave out --loss '
                'and SwapLossHook, or name other heads (--loss-heads, heads=).'
            )
        _set_losses(head, _new_losses(head, terms))
    return list(semantic)


def attach_to_runner(runner: Any) -> None:
    """Let the losses take the progress of this Runner, and log to its hub."""
    for name, head in heads_of_model(runner.model).items():
        # As mmseg calls them in the log: decode, aux, aux_0.
        prefix = name.replace('decode_head', 'decode')
        prefix = prefix.replace('auxiliary_head', 'aux').replace('.', '_')
        for _, loss in modules(head):
            if hasattr(loss, 'follow'):
                loss.follow(runner.message_hub, prefix)


def weight_cross_entropy(model: nn.Module, method: str | float) -> None:
    """Give mmseg's cross-entropy class weights from the statistics.

    The loss is replaced by ours, because mmseg's own function fails on ignored
    pixels in some versions once there are class weights.
    """
    for name, head in heads_of_model(model).items():
        if _keeps_losses(head):
            continue
        losses = losses_of(head)
        for place, loss in enumerate(losses):
            if type(loss) is not CrossEntropyLoss:
                continue
            has_own = loss.class_weight is not None
            if has_own or loss.use_sigmoid or loss.use_mask:
                print_log(
                    f'{name}.loss_decode has class weights of its own, or is '
                    'not a softmax: ClassStatsHook leaves it alone.',
                    logger='current',
                    level=logging.WARNING,
                )
            else:
                losses[place] = WeightedCrossEntropyLoss(
                    method, loss.reduction, loss.loss_weight, loss.loss_name
                )
        _set_losses(head, losses)


def _keeps_losses(head: Any) -> bool:
    # An iterative head is trained through its inner head, and a boundary head
    # has other classes.
    return isinstance(head, IterativeDecodeHead) or predicts_boundaries(head)


def losses_of(head: Any) -> list[Any]:
    """The losses of a head, which may be one or several."""
    losses = head.loss_decode
    return list(losses) if isinstance(losses, nn.ModuleList) else [losses]


def _set_losses(head: Any, losses: list[nn.Module]) -> None:
    new = losses[0] if len(losses) == 1 else nn.ModuleList(losses)
    head.loss_decode = new.to(next(head.parameters()).device)


def _new_losses(head: Any, terms: Sequence[Term]) -> list[nn.Module]:
    old = losses_of(head)
    for kind, places in SEMANTIC_PLACES.items():
        if isinstance(head, kind):
            for place in places:
                new = _build(head, terms, old[place].loss_weight)
                old[place] = new[0] if len(new) == 1 else LossSum(new)
            return old
    # False, the cross-entropy, is sorted before True.
    first = min(old, key=lambda x: 'CrossEntropy' not in type(x).__name__)
    return _build(head, terms, getattr(first, 'loss_weight', 1.0))


def _build(head: Any, terms: Sequence[Term], weight: float) -> list[nn.Module]:
    """Losses for one position of a head, with the weight of the old one."""
    samples = isinstance(head, PointHead) or head.sampler is not None
    built = [build_loss(term) for term in terms]
    for loss in built:
        if samples and isinstance(loss, RegionLoss | LovaszLoss):
            raise SettingError(
                f'{type(head).__name__} trains on chosen pixels only, and '
                f'{type(loss).__name__} needs whole images: take another '
                'loss, or take the sampler out of the head.'
            )
        check_class_weight(
            getattr(loss, 'class_weight', None), head.num_classes
        )
        loss.loss_weight *= weight
        if head.out_channels == 1:
            loss.register_forward_pre_hook(_see_two_classes)
    return built


def _see_two_classes(loss: nn.Module, inputs: tuple) -> tuple:
    """A binary head's score s as (0, s).

    Upstream's cross-entropy of (0, s) is the sigmoid cross-entropy of s.
    """
    scores, *others = inputs
    return two_class_scores(scores), *others
