"""Applies this package's corrections of mmengine when imported.

With them ``mmseg::`` and ``mmseg_margin::`` bases of configs resolve, and
checkpoints are loaded without executing code. Our tools apply them.

Example:
    >>> custom_imports = dict(imports=['mmseg_margin.patches'])
"""

from .compat import apply_patches

apply_patches()
