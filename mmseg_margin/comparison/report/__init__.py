"""The report of a comparison: one HTML page, and the same as Markdown."""

from .write import write_report

__all__ = ['write_report']
