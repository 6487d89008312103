"""The loss stage of a head without scores at full resolution.

A head's stage is its method ``loss_by_feat``: up-sampling, losses and
accuracy. It is replaced on single heads, for the duration of a training.
"""

import functools
from typing import Any

import torch
from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from mmseg.models.losses import CrossEntropyLoss
from torch import Tensor

from mmseg_margin.functional.backend import uncompiled

from .base import EPS, PixelLoss
from .baselines import WeightedCrossEntropyLoss
from .swap import losses_of

STAGE = 'loss_by_feat'


def why_not_fused(head: Any) -> str | None:
    """Why a head cannot have a fused stage, or None if it can."""
    for name in (STAGE, '_stack_batch_gt'):
        inherited = getattr(type(head), name) is getattr(BaseDecodeHead, name)
        if name in vars(head) or not inherited:
            return 'it has a loss stage of its own'
    if head.sampler is not None:
        return 'it samples pixels'
    reasons = map(why_not_fusible, losses_of(head))
    return next(filter(None, reasons), None)


def why_not_fusible(loss: Any) -> str | None:
    """Why the fused stage cannot compute a loss, or None if it can."""
    name = type(loss).__name__
    is_ours = type(loss).forward is PixelLoss.forward
    is_stock = type(loss) is CrossEntropyLoss
    if not (is_ours or is_stock) or loss.reduction == 'none':
        return f'it is trained with {name}'
    if is_stock and (loss.use_sigmoid or loss.use_mask):
        return f'its {name} is no softmax cross-entropy'
    # The fused stage does not call the loss, and so none of these.
    own = (loss._forward_hooks, loss._forward_pre_hooks, loss._backward_hooks)
    if any(own) or 'forward' in vars(loss):
        return f'its {name} has hooks or a forward of its own'
    return None


def fuse_stage(head: Any) -> None:
    """Compute the losses and the accuracy of a head in one pass."""
    # A partial, unlike a closure, is copied and pickled with its head.
    setattr(head, STAGE, functools.partial(fused_loss_by_feat, head))


def restore_stage(head: Any) -> None:
    """Give a head its own stage back; one of the user's own stays."""
    if getattr(vars(head).get(STAGE), 'func', None) is fused_loss_by_feat:
        delattr(head, STAGE)


def fused_loss_by_feat(
    head: Any, seg_logits: Tensor, batch_data_samples: list
) -> dict[str, Tensor]:
    """mmseg's ``loss_by_feat`` for scores (N, K, h, w)."""
    # Read in every step, because hooks may change a loss or its weight.
    losses = losses_of(head)
    if any(map(why_not_fusible, losses)):
        return type(head).loss_by_feat(head, seg_logits, batch_data_samples)
    label = head._stack_batch_gt(batch_data_samples).squeeze(1)
    log: dict[str, Tensor] = {}
    for loss in losses:
        value, hits = fused_loss(
            loss, seg_logits, label, head.ignore_index, head.align_corners
        )
        log[loss.loss_name] = log.get(loss.loss_name, 0) + value
    labelled = (label != head.ignore_index).sum()
    log['acc_seg'] = 100 * (hits + EPS).reshape(1) / (labelled + EPS)
    return log


@uncompiled
def fused_loss(
    loss: PixelLoss | CrossEntropyLoss,
    scores: Tensor,
    label: Tensor,
    ignore_index: int = 255,
    align_corners: bool = False,
) -> tuple[Tensor, Tensor]:
    """A loss with its current settings, and the number of hits."""
    if not isinstance(loss, PixelLoss):
        weights = loss.class_weight
        weights = None if weights is None else tuple(weights)
        average = loss.reduction, loss.loss_weight, 'loss', loss.avg_non_ignore
        loss = like_stock(scores.device, weights, *average)
    result = loss.run(scores, label, ignore_index, align_corners)
    return result.loss, result.hits


@functools.lru_cache(maxsize=16)
def like_stock(device: torch.device, *settings: Any) -> PixelLoss:
    """Our cross-entropy with the settings of mmseg's, built once for all."""
    return WeightedCrossEntropyLoss(*settings).to(device)
