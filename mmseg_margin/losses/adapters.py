"""Losses in places that are not made for them."""

from typing import Any

from torch import Tensor, nn

from .pixel_wise_loss import two_class_scores


class LossSum(nn.ModuleList):
    """Several losses in the place of one."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return sum(loss(*args, **kwargs) for loss in self)


class TwoClassLoss(nn.Module):
    """A loss of upstream's for a head with one score s: that of (0, s).

    With cross-entropy this is the sigmoid cross-entropy of s.
    """

    def __init__(self, loss: Any) -> None:
        super().__init__()
        self.loss = loss

    @property
    def loss_name(self) -> str:
        return self.loss.loss_name

    def forward(self, cls_score: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return self.loss(two_class_scores(cls_score), *args, **kwargs)
