"""What every pixel-wise objective does with the losses of the pixels."""

from collections.abc import Sequence

import torch
from mmengine.dist import all_reduce
from mmseg.models.losses.utils import weight_reduce_loss
from torch import Tensor


def reduce_pixels(
    loss: Tensor,
    label: Tensor,
    weight: Tensor | None,
    class_weight: Sequence[float] | Tensor | None,
    reduction: str,
    avg_factor: float | Tensor | None,
    ignore_index: int,
    avg_non_ignore: bool,
    global_mean: bool = False,
) -> Tensor:
    """Weight and reduce the loss (N, H, W), which is 0 where ignored.

    As in mmseg, pixel weights do not enter the average and class weights do;
    unlike there, class weights and ignored pixels go together.

    With ``global_mean`` the divisor of rank r of R is ``sum_r n_r / R`` in
    place of its own ``n_r``. The gradients, which are averaged over the
    ranks, are then those of ``sum_r S_r / sum_r n_r``, the mean over the
    pixels of all ranks, where the mean of means weights the pixels of a rank
    the more the fewer they are.
    """
    labelled = label != ignore_index
    share = torch.ones_like(loss)
    if class_weight is not None:
        weights = torch.as_tensor(class_weight).to(loss)
        share = weights[torch.where(labelled, label, 0)]
        loss = loss * share
    if reduction == 'mean' and avg_factor is None:
        if avg_non_ignore or class_weight is not None:
            share = share * labelled
        avg_factor = share.sum()
        if global_mean:
            all_reduce(avg_factor, 'mean')
    return weight_reduce_loss(
        loss,
        weight if weight is None else weight.to(loss),
        reduction,
        avg_factor,
    )
