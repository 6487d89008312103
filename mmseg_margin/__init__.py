"""Distribution-aware margin calibration for MMSegmentation.

``import mmseg_margin`` registers everything with MMSegmentation and changes
nothing else. Without MMSegmentation only :mod:`mmseg_margin.functional` can be
used.
"""

from .compat import INSTALL_HINT, has_mmseg, quiet_import
from .version import __version__

__all__ = ['__version__']

if has_mmseg():
    with quiet_import():
        from . import datasets, evaluation, models
        from .hooks import ClassStatsHook, SwapLossHook
        from .losses import (
            JaccardLoss,
            MarginCalibrationLoss,
            WeightedCrossEntropyLoss,
        )
        from .stats import ClassStats

    __all__ += [
        'ClassStats',
        'ClassStatsHook',
        'JaccardLoss',
        'MarginCalibrationLoss',
        'SwapLossHook',
        'WeightedCrossEntropyLoss',
        'datasets',
        'evaluation',
        'models',
    ]
else:

    def __getattr__(name: str) -> object:
        raise ImportError(f'mmseg_margin.{name} is not there. {INSTALL_HINT}')
