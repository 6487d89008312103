"""The whole package, and safe checkpoints with anybody's tools.

Example:
    >>> custom_imports = dict(imports=['mmseg_margin.safe_checkpoints'])
"""

from .compat import switch_on

switch_on()
