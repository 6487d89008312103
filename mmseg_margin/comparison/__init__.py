"""Train one config under several objectives and compare them.

Imported with the package, for the sake of the names in configs; what plans,
runs and reports is imported by its users alone.
"""

from .class_iou_metric import ClassIoUMetric
from .curves_hook import CurvesHook

__all__ = ['ClassIoUMetric', 'CurvesHook']
