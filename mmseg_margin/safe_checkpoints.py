"""The former name of :mod:`mmseg_margin.patches`, for dumped configs."""

from . import patches as patches
