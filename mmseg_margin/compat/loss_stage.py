"""The loss stage of mmseg's heads, and another one in its place."""

import functools
from collections.abc import Callable
from typing import Any

LOSS_STAGE = 'loss_by_feat'
# What a loss stage is: a head, its scores and labels (N, H, W) to a log.
LossStage = Callable[[Any, Any, Any], dict[str, Any]]


def has_stock_loss_stage(head: Any) -> bool:
    """Whether a head has mmseg's own up-sampling, losses and accuracy."""
    from mmseg.models.decode_heads.decode_head import BaseDecodeHead

    names = (LOSS_STAGE, '_stack_batch_gt')
    return LOSS_STAGE not in vars(head) and all(
        getattr(type(head), name) is getattr(BaseDecodeHead, name)
        for name in names
    )


def replace_loss_stage(head: Any, stage: LossStage) -> None:
    """Let one head compute its losses by another function."""
    # A partial, unlike a closure, is copied and pickled with its head.
    setattr(head, LOSS_STAGE, functools.partial(_run_stage, head, stage))


def restore_loss_stage(head: Any) -> None:
    """Give back what :func:`replace_loss_stage` took."""
    vars(head).pop(LOSS_STAGE, None)


def _run_stage(
    head: Any, stage: LossStage, scores: Any, batch_data_samples: Any
) -> dict[str, Any]:
    labels = head._stack_batch_gt(batch_data_samples)
    return stage(head, scores, labels.squeeze(1))
