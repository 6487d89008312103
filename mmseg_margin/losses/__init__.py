"""Objectives for decode heads, registered with MMSegmentation."""

from .baselines import RegionLoss, SoftmaxFocalLoss, WeightedCrossEntropyLoss
from .jaccard_loss import JaccardLoss
from .margin_calibration_loss import MarginCalibrationLoss

__all__ = [
    'JaccardLoss',
    'MarginCalibrationLoss',
    'RegionLoss',
    'SoftmaxFocalLoss',
    'WeightedCrossEntropyLoss',
]
