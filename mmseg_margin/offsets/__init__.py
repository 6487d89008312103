"""Fitted offsets: class offsets for a trained network.

Without MMSegmentation only :func:`fit_offsets` can be used.
"""

from mmseg_margin.compat import has_mmseg

from .fit import fit_offsets

__all__ = ['fit_offsets']

if has_mmseg():
    from .checkpoint import fit_checkpoint, fitted_offsets_of
    from .fit_runner import FittedOffsets, fit_runner

    __all__ += [
        'FittedOffsets',
        'fit_checkpoint',
        'fit_runner',
        'fitted_offsets_of',
    ]
