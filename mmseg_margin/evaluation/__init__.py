"""Metrics as in the paper, and test-time augmentation."""

from .cityscapes_scores_metric import CityscapesScoresMetric
from .margin_bound_metric import MarginBoundMetric
from .tail_iou_metric import (
    PerClassIoUMetric,
    TailIoUMetric,
    split_by_frequency,
)
from .training_counts import TrainingCountsHook
from .tta import ScoreTTAModel, tta_pipeline, use_tta

__all__ = [
    'CityscapesScoresMetric',
    'MarginBoundMetric',
    'PerClassIoUMetric',
    'ScoreTTAModel',
    'TailIoUMetric',
    'TrainingCountsHook',
    'split_by_frequency',
    'tta_pipeline',
    'use_tta',
]
