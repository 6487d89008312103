"""Train one config under several objectives and compare them.

Importing it registers what the runs of a comparison name in their configs.
"""

from .class_iou_metric import ClassIoUMetric
from .curves_hook import CurvesHook

__all__ = ['ClassIoUMetric', 'CurvesHook']
