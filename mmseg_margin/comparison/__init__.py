"""Train one config under several objectives and compare them."""

from .class_iou_metric import ClassIoUMetric
from .compare import compare
from .curves_hook import CurvesHook
from .report import write_report
from .results import RunResult, Study
from .truth import write_truth

__all__ = [
    'ClassIoUMetric',
    'CurvesHook',
    'RunResult',
    'Study',
    'compare',
    'write_report',
    'write_truth',
]
