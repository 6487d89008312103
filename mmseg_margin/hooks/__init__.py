"""Hooks, registered with MMSegmentation."""

from .class_stats_hook import ClassStatsHook

__all__ = ['ClassStatsHook']
