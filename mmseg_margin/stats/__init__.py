"""Label statistics: the scan of the annotation files and what follows."""

from .cache import META_KEY, StatsCache, stats_of_checkpoint
from .check import LabelReport, check_labels
from .class_stats import ClassStats, Provenance
from .collect import Collected, collect_stats
from .display import format_table, plot_stats
from .scan import LabelRange
from .weights import WEIGHT_METHODS, check_weight_method, class_weights

__all__ = [
    'META_KEY',
    'WEIGHT_METHODS',
    'ClassStats',
    'Collected',
    'LabelRange',
    'LabelReport',
    'Provenance',
    'StatsCache',
    'check_labels',
    'check_weight_method',
    'class_weights',
    'collect_stats',
    'format_table',
    'plot_stats',
    'stats_of_checkpoint',
]
