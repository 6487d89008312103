"""Replaces the losses of a segmentor's heads, in a model or a config."""

from collections.abc import Mapping, Sequence
from typing import Any

from mmengine.config import Config
from mmseg.models.decode_heads import (
    DDRHead,
    IterativeDecodeHead,
    PIDHead,
    PointHead,
)
from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from torch import Tensor, nn

from mmseg_margin.config_tools import (
    add_hook,
    as_list,
    registered_name,
    value_of,
)
from mmseg_margin.errors import SettingError
from mmseg_margin.heads import (
    HEADS,
    head_type,
    heads_of_config,
    heads_of_model,
    is_a,
    modules,
    predicts_boundaries,
)

from .base import two_class_scores
from .objectives import (
    Objective,
    Term,
    build_loss,
    parse_objective,
    try_loss,
)

# Heads that take losses from a list by position, and the positions that
# compare class scores with labels; the others learn boundaries.
SEMANTIC_PLACES = {PIDHead: (0, 1, 3), DDRHead: (0, 1)}
# Losses of whole regions, which support neither pixel weights nor points.
REGION_LOSSES = (
    'DiceLoss',
    'JaccardMetricLoss',
    'LovaszLoss',
    'TverskyLoss',
)
MATCHES_MASKS = 'assigns masks to queries instead of scoring pixels'
# Heads without a score for each pixel and class.
REFUSED = {
    'Mask2FormerHead': MATCHES_MASKS,
    'MaskFormerHead': MATCHES_MASKS,
    'SideAdapterCLIPHead': MATCHES_MASKS,
    'VPDDepthHead': 'predicts depth instead of classes',
}


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
    terms = parse_objective(objective)
    losses = [try_loss(term) for term in terms]
    semantic_heads(heads_of_config(cfg.model), terms, as_list(heads) or None)
    add_hook(cfg, 'SwapLossHook', loss=objective, heads=heads)
    if any(getattr(loss, 'needs_statistics', False) for loss in losses):
        add_hook(cfg, 'ClassStatsHook')


def swap_losses(
    model: nn.Module,
    terms: Sequence[Term],
    only: Sequence[str] | None = None,
) -> list[str]:
    """Give the semantic heads of a model one objective; returns their names.

    The weight of a head's cross-entropy, or else of its first loss, is kept.
    """
    others = {
        name: module
        for name, module in modules(model)
        if name in HEADS and not isinstance(module, nn.ModuleList)
    }
    heads = semantic_heads(others | heads_of_model(model), terms, only)
    for head in heads.values():
        head.loss_decode = _new_losses(head, terms).to(
            next(head.parameters()).device
        )
    return list(heads)


def follow_runner(runner: Any) -> None:
    """Let the losses take the progress of this Runner, and log to its hub."""
    for name, head in heads_of_model(runner.model).items():
        # As mmseg calls them in the log: decode, aux, aux_0.
        prefix = name.replace('decode_head', 'decode')
        prefix = prefix.replace('auxiliary_head', 'aux').replace('.', '_')
        for _, loss in modules(head):
            if hasattr(loss, 'follow'):
                loss.follow(runner.message_hub, prefix)


def semantic_heads(
    found: Mapping[str, Any],
    terms: Sequence[Term],
    only: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The heads, built or configs, that get an objective.

    Raises:
        SettingError: If there is none, or if one cannot take the objective.
    """
    chosen = {
        name: head
        for name, head in found.items()
        if only is None
        or any(f'{name}.'.startswith(f'{part}.') for part in only)
    }
    semantic = {}
    for name, head in chosen.items():
        # An iterative head is trained through its inner head, a boundary
        # head keeps its own loss.
        if is_a(head, IterativeDecodeHead) or predicts_boundaries(head):
            continue
        _check_head(name, head)
        for term in terms:
            _check_term(name, head, term)
        semantic[name] = head
    if not semantic:
        raise SettingError(
            f'The model has no {" or ".join(only or HEADS)} that could be '
            f'given another loss: its heads are {", ".join(found) or "none"}.'
        )
    return semantic


def _check_head(name: str, head: Any) -> None:
    kind = head_type(head)
    if kind is None:
        return  # building the model reports an unknown type
    reason = REFUSED.get(kind.__name__)
    if reason is None and not issubclass(kind, BaseDecodeHead):
        reason = 'is no BaseDecodeHead of MMSegmentation'
    if reason:
        raise SettingError(
            f'{name} is a {kind.__name__}, which {reason}, so no other loss '
            'can be given to it: leave out --loss and SwapLossHook, or name '
            'other heads (--loss-heads, heads=).'
        )


def _check_term(name: str, head: Any, term: Term) -> None:
    loss = registered_name(term)
    samples = is_a(head, PointHead) or value_of(head, 'sampler')
    if loss in REGION_LOSSES and samples:
        raise SettingError(
            f'{name} trains on chosen pixels only, and {loss} needs whole '
            'images: take another loss, or take the sampler out of the head.'
        )
    weights = term.get('class_weight')
    num_classes = value_of(head, 'num_classes')
    if isinstance(weights, list | tuple) and len(weights) != num_classes:
        raise SettingError(
            f'class_weight of {loss} has {len(weights)} entries and {name} '
            f'{num_classes} classes: give one weight for each class.'
        )


def _new_losses(head: Any, terms: Sequence[Term]) -> nn.Module:
    old = head.loss_decode
    for kind, places in SEMANTIC_PLACES.items():
        if isinstance(head, kind):
            return nn.ModuleList(
                LossSum(_build(head, terms, loss.loss_weight))
                if place in places
                else loss
                for place, loss in enumerate(old)
            )
    losses = list(old) if isinstance(old, nn.ModuleList) else [old]
    # False, the cross-entropy, is sorted before True.
    first = min(losses, key=lambda x: 'CrossEntropy' not in type(x).__name__)
    new = _build(head, terms, getattr(first, 'loss_weight', 1.0))
    return new[0] if len(new) == 1 else nn.ModuleList(new)


def _build(head: Any, terms: Sequence[Term], weight: float) -> list[nn.Module]:
    """Losses for one position of a head, with the weight of the old one."""
    built = []
    for term in terms:
        loss = build_loss(
            dict(term, loss_weight=weight * term.get('loss_weight', 1.0))
        )
        if hasattr(loss, 'ignore_index') and head.ignore_index is not None:
            # Upstream's Dice and Tversky ignore the head's ignore_index.
            loss.ignore_index = head.ignore_index
        if head.out_channels == 1:
            loss.register_forward_pre_hook(_see_two_classes)
        built.append(loss)
    return built


def _see_two_classes(loss: nn.Module, inputs: tuple) -> tuple:
    """A binary head's score s as (0, s).

    Upstream's cross-entropy of (0, s) is the sigmoid cross-entropy of s.
    """
    scores, *others = inputs
    return two_class_scores(scores), *others
