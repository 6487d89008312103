"""Labels as the kernels take them."""

import torch
from torch import Tensor

from mmseg_margin.errors import SettingError


def check_shapes(scores: Tensor, labels: Tensor) -> None:
    """Raise unless scores are (N, K, ...) and labels (N, ...)."""
    expected = scores.shape[:1] + scores.shape[2:]
    if scores.dim() < 2 or labels.shape != expected:
        raise SettingError(
            'scores must be (N, K, ...) and labels (N, ...), got '
            f'{tuple(scores.shape)} and {tuple(labels.shape)}.'
        )


def known_labels(
    labels: Tensor, num_classes: int, ignore_index: int
) -> Tensor:
    """int32, -1 where ignored.

    A label that is neither a class nor ignored is an error. On a GPU, which
    would have to be waited for, such a pixel is left out instead.
    """
    if num_classes < 2:
        raise SettingError(
            'A margin needs at least two classes, got scores of one channel: '
            'set out_channels=2 (and num_classes=2) in the head.'
        )
    if labels.dtype not in (torch.int64, torch.int32):
        labels = labels.long()
    left_out = labels == ignore_index
    if labels.device.type == 'cpu':
        check_label_values(labels, num_classes, ignore_index)
    else:
        left_out |= (labels < 0) | (labels >= num_classes)
    return labels.to(torch.int32, copy=True).masked_fill_(left_out, -1)


def check_label_values(
    labels: Tensor, num_classes: int, ignore_index: int
) -> None:
    """Raise if a label is neither a class nor ignored."""
    if not labels.numel():
        return
    classes = labels.masked_fill(labels == ignore_index, 0)
    lowest, highest = classes.aminmax()
    if lowest >= 0 and highest < num_classes:
        return
    wrong = classes[(classes < 0) | (classes >= num_classes)]
    raise SettingError(
        f'Labels {wrong.unique().tolist()} lie outside [0, {num_classes}) '
        f'and are not ignore_index={ignore_index}: correct num_classes, map '
        'them in the data set (reduce_zero_label, label_map), or set '
        'ignore_index.'
    )
