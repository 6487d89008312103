"""Label statistics: the scan of the annotation files and the label check."""

from .cache import META_KEY, VALIDATION_KEY, StatsCache, stats_of_checkpoint
from .check import LabelReport, check_labels, check_validation_labels
from .class_stats import (
    WEIGHT_METHODS,
    ClassStats,
    Provenance,
    check_weight_method,
    class_weights,
)
from .display import format_table, plot_stats
from .scan import Collected, collect_stats

__all__ = [
    'META_KEY',
    'VALIDATION_KEY',
    'WEIGHT_METHODS',
    'ClassStats',
    'Collected',
    'LabelReport',
    'Provenance',
    'StatsCache',
    'check_labels',
    'check_validation_labels',
    'check_weight_method',
    'class_weights',
    'collect_stats',
    'format_table',
    'plot_stats',
    'stats_of_checkpoint',
]
