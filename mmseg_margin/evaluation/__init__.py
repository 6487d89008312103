"""Metrics as in the paper, and test-time augmentation."""

from .cityscapes_scores_metric import CityscapesScoresMetric
from .margin_bound_metric import MarginBoundMetric
from .tail_iou_metric import (
    PerClassIoUMetric,
    TailIoUMetric,
    TrainingCountsHook,
)
from .tta import ScoreTTAModel, use_tta

__all__ = [
    'CityscapesScoresMetric',
    'MarginBoundMetric',
    'PerClassIoUMetric',
    'ScoreTTAModel',
    'TailIoUMetric',
    'TrainingCountsHook',
    'use_tta',
]
