"""Loads checkpoints without executing code from them."""

import os
import pickle
from typing import Any

import numpy as np
import torch
from mmengine.logging import HistoryBuffer

from .errors import MissingFileError, SettingError


class CheckpointError(SettingError):
    """A checkpoint that is damaged or contains more than weights."""


def safe_globals() -> list:
    """What mmengine's log buffers need to be loaded as weights."""

    def history_buffer_method(owner: object, name: str) -> object:
        if owner is HistoryBuffer and not name.startswith('_'):
            return getattr(owner, name)
        raise pickle.UnpicklingError(
            f'A checkpoint may not access {owner!r}.{name}.'
        )

    makers = [value.__reduce__()[0] for value in (np.empty(1), np.float64(0))]
    dtypes = [type(np.dtype(name)) for name in '?bBhHiIlLqQefd']
    # Instead of getattr itself, which would give access to everything.
    method = (history_buffer_method, 'builtins.getattr')
    return [HistoryBuffer, np.ndarray, np.dtype, *makers, *dtypes, method]


def load_from_local(filename: str, map_location: Any = None) -> Any:
    """Load a checkpoint file as weights and plain data."""
    path = os.path.expanduser(filename)
    if not os.path.isfile(path):
        raise MissingFileError(
            f'The checkpoint {filename} does not exist: give the path to a '
            '.pth file.'
        )
    try:
        return torch.load(path, map_location=map_location, weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f'The checkpoint {filename} was not loaded, because it is damaged '
            'or contains more than weights; nothing in it was executed. If '
            'you trust its origin, save its state_dict alone with torch.save '
            'and load that.'
        ) from error
    except (EOFError, LookupError, RuntimeError) as error:
        raise CheckpointError(
            f'The checkpoint {filename} is damaged: copy it again, or use an '
            'earlier one.'
        ) from error
