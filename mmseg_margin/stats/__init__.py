"""Label statistics: the scan of the annotation files and what follows."""

from .cache import StatsCache
from .class_stats import ClassStats
from .collect import Collected, DataSetError, collect_stats
from .heads import Head, heads_of_config, heads_of_model, ignore_index_of
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
    'heads_of_config',
    'heads_of_model',
    'ignore_index_of',
    'inspect',
    'plot_stats',
]
