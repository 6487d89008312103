"""Evaluation as in the paper, and submissions to the servers."""

from .cityscapes_scores_metric import CityscapesScoresMetric
from .generalisation_gap_hook import GeneralisationGapHook
from .margin_bound_metric import MarginBoundMetric
from .submission import SubmissionError, SubmissionMetric, make_submission
from .tail_iou_metric import TailIoUMetric, split_by_frequency
from .training_counts import TrainingCountsHook
from .tta import ScoreTTAModel, tta_pipeline, use_tta

__all__ = [
    'CityscapesScoresMetric',
    'GeneralisationGapHook',
    'MarginBoundMetric',
    'ScoreTTAModel',
    'SubmissionError',
    'SubmissionMetric',
    'TailIoUMetric',
    'TrainingCountsHook',
    'make_submission',
    'split_by_frequency',
    'tta_pipeline',
    'use_tta',
]
