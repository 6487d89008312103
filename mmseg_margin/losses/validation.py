"""What a margin loss must not be given."""

import torch
from torch import Tensor

from mmseg_margin.stats import check_weight_method

NO_STATISTICS = (
    'MarginCalibrationLoss has no class statistics yet: add '
    "custom_hooks=[dict(type='ClassStatsHook')] to the config, or give the "
    'loss class_counts=[...] or the JSON file of tools/class_stats.py.'
)


def check_settings(
    form: str, class_balance: str, class_weight: object, loss_name: str
) -> None:
    """Raise on settings that would fail, or go unnoticed, later."""
    if isinstance(class_weight, (str, int, float)):
        check_weight_method('class_weight', class_weight)
    if class_balance not in ('none', 'iou'):
        raise ValueError(
            f"class_balance={class_balance!r} is not 'none' or 'iou'."
        )
    if class_balance == 'iou' and form == 'softmax':
        raise ValueError(
            "class_balance='iou' weights foreground and background terms, "
            "which form='softmax' does not have: use form='target'."
        )
    if 'loss' not in loss_name:
        raise ValueError(
            f'loss_name={loss_name!r} must contain "loss", or mmengine '
            'leaves the term out of the sum it minimises.'
        )


def check_statistics(rho_0k: Tensor, num_classes: int) -> None:
    """Raise if the offsets are not there or not those of the head."""
    if len(rho_0k) == 0:
        raise RuntimeError(NO_STATISTICS)
    if 1 < num_classes != len(rho_0k):
        raise ValueError(
            f'The head has {num_classes} classes but the statistics '
            f'{len(rho_0k)}: make num_classes and the data set agree.'
        )


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
