"""Objectives for decode heads, registered with MMSegmentation."""

from .cross_entropy_losses import SoftmaxFocalLoss, WeightedCrossEntropyLoss
from .jaccard_loss import JaccardLoss
from .margin_calibration_loss import MarginCalibrationLoss
from .region_loss import RegionLoss

__all__ = [
    'JaccardLoss',
    'MarginCalibrationLoss',
    'RegionLoss',
    'SoftmaxFocalLoss',
    'WeightedCrossEntropyLoss',
]
