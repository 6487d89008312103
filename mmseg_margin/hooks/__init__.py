"""Hooks, registered with MMSegmentation."""

from .class_stats_hook import ClassStatsHook
from .exact_resume_hook import ExactResumeHook

__all__ = ['ClassStatsHook', 'ExactResumeHook']
