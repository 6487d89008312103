"""Imports everything that registers itself with MMSegmentation."""

from .compat import forward_messages, quiet_import

with quiet_import():
    from . import datasets, evaluation, models
    from .hooks import ClassStatsHook, SwapLossHook
    from .losses import (
        JaccardLoss,
        MarginCalibrationLoss,
        WeightedCrossEntropyLoss,
    )
    from .stats import ClassStats

__all__ = ['ClassStats', 'ClassStatsHook', 'JaccardLoss']
__all__ += [
    'MarginCalibrationLoss',
    'SwapLossHook',
    'WeightedCrossEntropyLoss',
]
__all__ += ['datasets', 'evaluation', 'models']

forward_messages()
