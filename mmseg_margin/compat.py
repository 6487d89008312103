"""What differs between the two stacks, and the one thing that is patched."""

from importlib import metadata
from importlib.util import find_spec

INSTALL_HINT = (
    'MMSegmentation is not installed: '
    "run pip install 'mmseg_margin[onedl]' (maintained forks) "
    "or pip install 'mmseg_margin[openmmlab]' (upstream)."
)


def has_mmseg() -> bool:
    """Whether a stack is installed, without importing it."""
    return find_spec('mmseg') is not None


def require_mmseg() -> None:
    """Stop the program with a sentence if no stack is installed."""
    if not has_mmseg():
        raise SystemExit(f'error: {INSTALL_HINT}')


def is_distribution(name: str) -> bool:
    """Whether pip knows an installed distribution of that name."""
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def let_configs_inherit_from_mmseg() -> None:
    """Make ``_base_ = 'mmseg::...'`` resolve on the maintained forks.

    mmengine turns the scope ``mmseg`` into the name of the distribution that
    holds its configs through a table. The forks renamed the distribution and
    left the table alone, so every such config fails to load.
    """
    from mmengine.config.utils import MODULE2PACKAGE

    if is_distribution('onedl-mmsegmentation'):
        MODULE2PACKAGE['mmseg'] = 'onedl-mmsegmentation'
