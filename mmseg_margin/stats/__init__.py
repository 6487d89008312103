"""Label statistics: the scan of the annotation files and the label check."""

from .cache import META_KEY, StatsCache, stats_of_checkpoint
from .check import (
    CheckOptions,
    LabelReport,
    check_labels,
)
from .class_stats import ClassStats
from .display import format_table, plot_stats
from .scan import Collected, collect_stats
from .weighting import WEIGHT_METHODS, check_weight_method, class_weights

__all__ = [
    'META_KEY',
    'WEIGHT_METHODS',
    'CheckOptions',
    'ClassStats',
    'Collected',
    'LabelReport',
    'StatsCache',
    'check_labels',
    'check_weight_method',
    'class_weights',
    'collect_stats',
    'format_table',
    'plot_stats',
    'stats_of_checkpoint',
]
