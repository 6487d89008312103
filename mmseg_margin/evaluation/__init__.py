"""Metrics as in the paper, test-time augmentation and submissions."""

from .cityscapes_scores_metric import CityscapesScoresMetric
from .generalisation_gap_hook import GeneralisationGapHook
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
    'GeneralisationGapHook',
    'MarginBoundMetric',
    'PerClassIoUMetric',
    'ScoreTTAModel',
    'TailIoUMetric',
    'TrainingCountsHook',
    'split_by_frequency',
    'tta_pipeline',
    'use_tta',
]
