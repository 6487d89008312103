"""What comparisons and searches write their reports with."""

from .numbers import (
    ABSENT,
    PairedDifference,
    embolden_best,
    interval_text,
    mean_difference,
    mean_text,
    paired_difference,
    signed,
)
from .pages import Bold, Table, write_pages
from .pictures import colours_of, new_figure, save_figure, tidy, title_lines

__all__ = [
    'ABSENT',
    'Bold',
    'PairedDifference',
    'Table',
    'colours_of',
    'embolden_best',
    'interval_text',
    'mean_difference',
    'mean_text',
    'new_figure',
    'paired_difference',
    'save_figure',
    'signed',
    'tidy',
    'title_lines',
    'write_pages',
]
