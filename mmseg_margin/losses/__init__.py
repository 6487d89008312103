"""Objectives for decode heads, registered with MMSegmentation."""

from .margin_calibration_loss import MarginCalibrationLoss
from .softmax_focal_loss import SoftmaxFocalLoss
from .weighted_cross_entropy_loss import WeightedCrossEntropyLoss

__all__ = [
    'MarginCalibrationLoss',
    'SoftmaxFocalLoss',
    'WeightedCrossEntropyLoss',
]
