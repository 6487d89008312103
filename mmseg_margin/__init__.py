"""Distribution-aware margin calibration for MMSegmentation.

``import mmseg_margin`` registers everything with MMSegmentation and changes
nothing else; only the command-line tools do so later, once they have parsed
their arguments. Without MMSegmentation only :mod:`mmseg_margin.functional` can
be used.
"""

from .compat import INSTALL_HINT, has_mmseg, is_starting_tool
from .version import __version__ as __version__

if has_mmseg() and not is_starting_tool():
    from .registration import *  # noqa: F403
else:

    def __getattr__(name: str) -> object:
        if not name[0].isupper():  # not a class, but perhaps a submodule
            raise AttributeError(f'mmseg_margin has no {name}.')
        if not has_mmseg():
            raise ImportError(f'mmseg_margin has no {name}. {INSTALL_HINT}')
        from . import registration

        return getattr(registration, name)
