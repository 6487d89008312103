"""The loss stage of a head without scores at full resolution.

A head's stage is its method ``loss_by_feat``: up-sampling, losses and
accuracy. It is replaced on single heads, for the duration of a training.
"""

import functools
from typing import Any

from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from mmseg.models.losses import CrossEntropyLoss
from torch import Tensor, nn

from mmseg_margin.functional.backend import uncompiled

from .base import EPS, PixelLoss
from .cross_entropy_losses import SoftmaxFocalLoss, WeightedCrossEntropyLoss
from .jaccard_loss import JaccardLoss
from .margin_calibration_loss import MarginCalibrationLoss

# Exactly these, because a subclass may compute something else.
OURS = (
    JaccardLoss,
    MarginCalibrationLoss,
    SoftmaxFocalLoss,
    WeightedCrossEntropyLoss,
)
STAGE = 'loss_by_feat'
# mmseg's own stage is quicker for cross-entropy on fewer scores than this.
STOCK_BELOW = 2**16


def why_not_fused(head: Any) -> str | None:
    """Why a head cannot have a fused stage, or None if it can."""
    if any(
        getattr(type(head), name) is not getattr(BaseDecodeHead, name)
        for name in (STAGE, '_stack_batch_gt')
    ):
        return 'it has a loss stage of its own'
    if head.sampler is not None:
        return 'it samples pixels'
    if head.out_channels == 1:
        return 'it has one channel'
    for loss in losses_of(head):
        if not is_fusible(loss):
            return f'it is trained with {type(loss).__name__}'
    return None


def fuse_stage(head: Any) -> None:
    """Compute the losses and the accuracy of a head in one pass."""
    # A partial, unlike a closure, is copied and pickled with its head.
    setattr(head, STAGE, functools.partial(fused_loss_by_feat, head))


def restore_stage(head: Any) -> None:
    """Give a head its own stage back."""
    vars(head).pop(STAGE, None)


def fused_loss_by_feat(
    head: Any, seg_logits: Tensor, batch_data_samples: list
) -> dict[str, Tensor]:
    """mmseg's ``loss_by_feat`` for scores (N, K, h, w)."""
    # Read in every step, because hooks may change a loss or its weight.
    losses = losses_of(head)
    label = head._stack_batch_gt(batch_data_samples).squeeze(1)
    is_small = seg_logits.shape[1] * label.numel() < STOCK_BELOW
    is_stock = all(type(loss) is CrossEntropyLoss for loss in losses)
    if (is_small and is_stock) or not all(map(is_fusible, losses)):
        return type(head).loss_by_feat(head, seg_logits, batch_data_samples)
    log: dict[str, Tensor] = {}
    for loss in losses:
        value, hits = fused_loss(
            loss, seg_logits, label, head.ignore_index, head.align_corners
        )
        name = loss.loss_name
        log[name] = log[name] + value if name in log else value
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
        loss = WeightedCrossEntropyLoss(
            loss.class_weight,
            loss.reduction,
            loss.loss_weight,
            avg_non_ignore=loss.avg_non_ignore,
        ).to(scores.device)
    result = loss.run(scores, label, ignore_index, align_corners)
    return result.loss, result.hits


def losses_of(head: Any) -> list[Any]:
    losses = head.loss_decode
    return list(losses) if isinstance(losses, nn.ModuleList) else [losses]


def is_fusible(loss: Any) -> bool:
    """Whether a loss gives one number that the fused stage can compute."""
    if getattr(loss, 'reduction', None) not in ('mean', 'sum'):
        return False
    if type(loss) is CrossEntropyLoss:
        return not (loss.use_sigmoid or loss.use_mask)
    return type(loss) in OURS
