"""What every pixel-wise objective does with labels and per-pixel losses."""

from collections.abc import Sequence

import torch
from mmseg.models.losses.utils import weight_reduce_loss
from torch import Tensor


def check_labels(label: Tensor, num_classes: int, ignore_index: int) -> None:
    """Raise if a label is neither a class nor ignored."""
    classes = torch.where(label == ignore_index, 0, label)
    lowest, highest = classes.aminmax()
    if lowest < 0 or highest >= num_classes:
        wrong = (classes < 0) | (classes >= num_classes)
        raise ValueError(
            f'Labels {label[wrong].unique().tolist()} lie outside '
            f'[0, {num_classes}) and are not ignore_index={ignore_index}: '
            'correct num_classes, map them in the data set '
            '(reduce_zero_label, label_map), or set ignore_index.'
        )


def reduce_pixels(
    loss: Tensor,
    label: Tensor,
    weight: Tensor | None,
    class_weight: Sequence[float] | Tensor | None,
    reduction: str,
    avg_factor: float | Tensor | None,
    ignore_index: int,
    avg_non_ignore: bool,
) -> Tensor:
    """Weight and reduce the loss (N, H, W), which is 0 where ignored.

    As in mmseg, pixel weights do not enter the average and class weights do;
    unlike there, class weights and ignored pixels go together.
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
    return weight_reduce_loss(
        loss,
        weight if weight is None else weight.to(loss),
        reduction,
        avg_factor,
    )
