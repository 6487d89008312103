"""From the losses of the pixels to the loss of a batch."""

from typing import NamedTuple

import torch
from mmengine.dist import all_reduce
from torch import Tensor

from mmseg_margin.errors import SettingError

REDUCTIONS = ('none', 'mean', 'sum')
# mmseg's protection against a batch without labels.
EPS = torch.finfo(torch.float32).eps


class PixelShares(NamedTuple):
    """Weights (N, H, W) of the pixels, and what their sum is divided by."""

    weights: Tensor | None
    divisor: Tensor | float

    def of_each(self, total: float = 1.0) -> Tensor | float:
        """What each pixel's loss is multiplied by, one for all or its own."""
        share = total / self.divisor
        return share if self.weights is None else share * self.weights


def check_reduction(reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise SettingError(
            f'reduction={reduction!r} is not one of {REDUCTIONS}.'
        )


def pixel_shares(
    label: Tensor,
    ignore_index: int,
    reduction: str,
    class_weight: Tensor | None,
    weight: Tensor | None = None,
    avg_factor: float | Tensor | None = None,
    avg_non_ignore: bool = True,
    global_mean: bool = False,
) -> PixelShares:
    """How much each pixel counts in the loss of a batch.

    As in mmseg, pixel weights do not enter the average and class weights do;
    unlike there, class weights and ignored pixels go together.

    With ``global_mean`` the divisor of rank r of R is ``sum_r n_r / R`` in
    place of its own ``n_r``. The gradients, which are averaged over the
    ranks, are then those of ``sum_r S_r / sum_r n_r``, the mean over the
    pixels of all ranks, where the mean of means weights the pixels of a rank
    the more the fewer they are.
    """
    check_reduction(reduction)
    if avg_factor is not None and reduction == 'sum':
        raise SettingError("avg_factor cannot be used with reduction='sum'.")
    labelled = label != ignore_index
    weights = None
    if class_weight is not None:
        of_pixels = class_weight[torch.where(labelled, label, 0)]
        weights = of_pixels * labelled
    if reduction != 'mean':
        divisor: Tensor | float = 1.0
    elif avg_factor is not None:
        divisor = avg_factor + EPS
    else:
        counted = labelled if weights is None else weights
        if weights is None and not avg_non_ignore:
            counted = torch.ones_like(labelled)
        divisor = counted.sum(dtype=torch.float32)
        if global_mean:
            all_reduce(divisor, 'mean')
        divisor = divisor + EPS
    if weight is not None:
        weights = weight.float() * (1.0 if weights is None else weights)
    return PixelShares(weights, divisor)
