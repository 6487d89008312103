"""Label statistics: the scan of the annotation files and what follows."""

from .cache import StatsCache
from .class_stats import ClassStats
from .collect import Collected, DataSetError, collect_stats
from .heads import Head, ignore_index_of, label_heads
from .plot import plot_stats
from .preflight import Report, inspect
from .provenance import Provenance
from .table import format_table
from .tally import LabelRange
from .weights import WEIGHT_METHODS, check_weight_method, class_weights

__all__ = [
    'WEIGHT_METHODS',
    'ClassStats',
    'Collected',
    'DataSetError',
    'Head',
    'LabelRange',
    'Provenance',
    'Report',
    'StatsCache',
    'check_weight_method',
    'class_weights',
    'collect_stats',
    'format_table',
    'ignore_index_of',
    'inspect',
    'label_heads',
    'plot_stats',
]
