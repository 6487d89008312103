"""Objectives for decode heads, registered with MMSegmentation."""

from .cross_entropy_losses import SoftmaxFocalLoss, WeightedCrossEntropyLoss
from .jaccard_loss import JaccardLoss
from .jaccard_metric_loss import JaccardMetricLoss
from .margin_calibration_loss import MarginCalibrationLoss

__all__ = [
    'JaccardLoss',
    'JaccardMetricLoss',
    'MarginCalibrationLoss',
    'SoftmaxFocalLoss',
    'WeightedCrossEntropyLoss',
]
