"""Objectives for decode heads, registered with MMSegmentation."""

from .cross_entropy_losses import SoftmaxFocalLoss, WeightedCrossEntropyLoss
from .margin_calibration_loss import MarginCalibrationLoss

__all__ = [
    'MarginCalibrationLoss',
    'SoftmaxFocalLoss',
    'WeightedCrossEntropyLoss',
]
