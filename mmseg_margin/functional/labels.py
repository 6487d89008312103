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
    ignored = labels == ignore_index
    wrong = ((labels < 0) | (labels >= num_classes)) & ~ignored
    if labels.device.type == 'cpu' and wrong.any():
        raise SettingError(
            f'Labels {labels[wrong].unique().tolist()} lie outside '
            f'[0, {num_classes}) and are not ignore_index={ignore_index}: '
            'correct num_classes, map them in the data set '
            '(reduce_zero_label, label_map), or set ignore_index.'
        )
    known = labels.to(torch.int32, copy=True)
    return known.masked_fill_(ignored.logical_or_(wrong), -1)
