"""The loss stage of a head without scores at full resolution."""

from typing import Any

from mmseg.models.losses import CrossEntropyLoss
from torch import Tensor, nn

from mmseg_margin.compat import has_stock_loss_stage

from .averaging import EPS
from .cross_entropy_losses import SoftmaxFocalLoss, WeightedCrossEntropyLoss
from .margin_calibration_loss import MarginCalibrationLoss
from .pixel_wise_loss import PixelWiseLoss

OURS = (MarginCalibrationLoss, SoftmaxFocalLoss, WeightedCrossEntropyLoss)


class FusedStage:
    """mmseg's up-sampling, losses and accuracy of one head, in one pass."""

    def __init__(self, losses: list[PixelWiseLoss]) -> None:
        self.losses = losses

    def __call__(
        self, head: Any, scores: Tensor, label: Tensor
    ) -> dict[str, Tensor]:
        """Scores (N, K, h, w) and labels (N, H, W) to what is logged."""
        log: dict[str, Tensor] = {}
        for loss in self.losses:
            value, hits = loss.fused_stage(
                scores, label, head.ignore_index, head.align_corners
            )
            name = loss.loss_name
            log[name] = log[name] + value if name in log else value
        labelled = (label != head.ignore_index).sum()
        log['acc_seg'] = 100 * (hits + EPS).reshape(1) / (labelled + EPS)
        return log


def why_not_fused(head: Any) -> str | None:
    """What keeps a head from a fused stage, or None."""
    if not has_stock_loss_stage(head):
        return 'it has a loss stage of its own'
    if head.sampler is not None:
        return 'it samples pixels'
    if head.out_channels == 1:
        return 'it has one channel'
    for loss in losses_of(head):
        if fusable(loss) is None:
            return f'it is trained with {type(loss).__name__}'
    return None


def losses_of(head: Any) -> list[Any]:
    losses = head.loss_decode
    return list(losses) if isinstance(losses, nn.ModuleList) else [losses]


def fusable(loss: Any) -> PixelWiseLoss | None:
    """The loss, or one of ours that equals it, if it gives one number."""
    if getattr(loss, 'reduction', None) not in ('mean', 'sum'):
        return None
    # Exactly these, because a subclass may compute something else.
    if type(loss) in OURS:
        return loss
    if type(loss) is not CrossEntropyLoss or loss.use_sigmoid or loss.use_mask:
        return None
    twin = WeightedCrossEntropyLoss(
        loss.class_weight,
        loss.reduction,
        loss.loss_weight,
        loss.loss_name,
        loss.avg_non_ignore,
    )
    # As there, a GPU does not wait for a look at the labels.
    twin.labels_checked = True
    return twin
