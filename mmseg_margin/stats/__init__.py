"""Label statistics: the scan of the annotation files and the label check."""

from .check import LabelReport, check_labels
from .class_stats import (
    META_KEY,
    WEIGHT_METHODS,
    ClassStats,
    StatsCache,
    class_weights,
    stats_of_checkpoint,
)
from .display import format_table, plot_stats
from .scan import collect_stats

__all__ = [
    'META_KEY',
    'WEIGHT_METHODS',
    'ClassStats',
    'LabelReport',
    'StatsCache',
    'check_labels',
    'class_weights',
    'collect_stats',
    'format_table',
    'plot_stats',
    'stats_of_checkpoint',
]
