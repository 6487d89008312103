"""What differs between the two stacks, and the one thing that is patched."""

import pickle
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


def let_checkpoints_load() -> None:
    """Make mmengine's own checkpoints load where only weights are loaded.

    Since torch 2.6 ``torch.load`` accepts nothing but tensors and what is
    declared safe, and upstream's mmengine keeps its log buffers in every
    checkpoint. They are declared here, so that no checkpoint has to be loaded
    as arbitrary pickle. Nothing is changed on the forks, which see to it
    themselves.
    """
    import numpy as np
    import torch
    from mmengine.logging import HistoryBuffer

    declare = getattr(torch.serialization, 'add_safe_globals', None)
    if declare is None or is_distribution('onedl-mmengine'):
        return

    def method_of_history_buffer(owner: object, name: str) -> object:
        if owner is HistoryBuffer and not name.startswith('_'):
            return getattr(owner, name)
        raise pickle.UnpicklingError(
            f'A checkpoint may not reach for {owner!r}.{name}.'
        )

    array = np.empty(1)
    reconstruct = array.__reduce__()[0]
    scalar = np.float64(0).__reduce__()[0]
    dtypes = [type(np.dtype(name)) for name in ('f8', 'f4', 'i8', 'i4')]
    declare(
        [
            HistoryBuffer,
            np.ndarray,
            np.dtype,
            reconstruct,
            scalar,
            *dtypes,
            (method_of_history_buffer, 'builtins.getattr'),
        ]
    )
