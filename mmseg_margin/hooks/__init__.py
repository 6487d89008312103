"""Hooks, registered with MMSegmentation."""

from .class_stats_hook import ClassStatsHook
from .fit_offsets_hook import FitOffsetsHook
from .fused_loss_hook import FusedLossHook
from .swap_loss_hook import SwapLossHook

__all__ = [
    'ClassStatsHook',
    'FitOffsetsHook',
    'FusedLossHook',
    'SwapLossHook',
]
