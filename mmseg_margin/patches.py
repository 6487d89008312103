"""Applies this package's corrections of mmengine and mmcv when imported.

With them ``mmseg::`` and ``mmseg_margin::`` bases of configs resolve,
checkpoints are loaded without executing code, and a damaged image is named.
Our tools apply them.

Example:
    >>> custom_imports = dict(imports=['mmseg_margin.patches'])
"""

from .compat import apply_patches

apply_patches()
