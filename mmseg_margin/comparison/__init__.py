"""Train one config under several objectives and compare them.

The import registers the hook and the metric that the configs of runs name.
"""

from .curves import ClassIoUMetric, CurvesHook

__all__ = ['ClassIoUMetric', 'CurvesHook']
