"""Differences between the two stacks, and patches of their modules.

Importing this module patches nothing; the tools call :func:`apply_patches`.
"""

import functools
import logging
import os
import pickle
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from importlib import metadata
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

from .errors import DataSetError, MissingFileError, SettingError

INSTALL_HINT = (
    'MMSegmentation is not installed: '
    "run pip install 'mmseg_margin[onedl]' (maintained forks) "
    "or pip install 'mmseg_margin[openmmlab]' (upstream)."
)
PACKAGE = Path(__file__).parent


def has_mmseg() -> bool:
    """Whether a stack is installed, without importing it."""
    return find_spec('mmseg') is not None


def is_starting_tool() -> bool:
    """Whether this process is a tool that has not parsed its arguments yet.

    It imports MMSegmentation, which takes seconds, only after that.
    """
    script = Path(sys.argv[0]).resolve()
    is_script = script.is_file() and script.parent == packed_folder('tools')
    is_module = sys.orig_argv[1:3] == ['-m', PACKAGE.name]
    return 'mmengine' not in sys.modules and (is_script or is_module)


@contextmanager
def quiet_import() -> Iterator[None]:
    """Suppress what the forks print, and mmcv warns of, on every import."""
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.filterwarnings('ignore', '.*MultiScaleDeformableAttention')
        yield


def packed_folder(name: str) -> Path:
    """``configs`` or ``tools``, in an installed package or in a clone."""
    installed = PACKAGE / '.mim' / name  # where setup.py copies them
    folder = installed if installed.is_dir() else PACKAGE.parent / name
    return folder.resolve()


def forward_messages() -> None:
    """Write messages of this package into the log of the current Runner."""
    from mmengine.logging import MMLogger

    class ForwardingHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            MMLogger.get_current_instance().handle(record)

    logger = logging.getLogger(PACKAGE.name)
    logger.setLevel(logging.INFO)
    logger.addHandler(ForwardingHandler())


@functools.cache
def apply_patches() -> None:
    """Apply all patches below, once in a process."""
    patch_config_bases()
    patch_checkpoint_loading()
    patch_image_loading()


def patch_config_bases() -> None:
    """Resolve ``_base_ = 'mmseg::...'`` and ``'mmseg_margin::...'``.

    mmengine looks up the distribution of a scope in a table. The forks
    renamed their distribution but not the entry, and ours has none.
    """
    from mmengine.config import Config
    from mmengine.config.utils import MODULE2PACKAGE

    with suppress(metadata.PackageNotFoundError):
        fork = metadata.distribution('onedl-mmsegmentation')
        MODULE2PACKAGE['mmseg'] = fork.name
    original = Config._get_cfg_path

    def get_cfg_path(base: str, filename: str) -> tuple[str, str | None]:
        scope, _, name = base.partition('::')
        if scope != PACKAGE.name:
            return original(base, filename)
        # The types of our configs are found in the scope mmseg.
        return str(packed_folder('configs') / name), 'mmseg'

    Config._get_cfg_path = staticmethod(get_cfg_path)


def patch_checkpoint_loading() -> None:
    """Load checkpoints as weights, including mmengine's log buffers.

    Since torch 2.6 ``torch.load`` refuses unknown classes, so upstream's
    mmengine cannot load its own checkpoints, and the forks fall back to
    loading arbitrary pickles, which may execute code.
    """
    import torch
    from mmengine.runner import CheckpointLoader

    declare = getattr(torch.serialization, 'add_safe_globals', None)
    if declare is None:
        return
    declare(_safe_globals())
    CheckpointLoader.register_scheme('', load_from_local, force=True)
    original = CheckpointLoader.load_checkpoint

    def load_checkpoint(
        filename: str, map_location: Any = None, logger: Any = None
    ) -> Any:
        # By default mmengine prints the name of the file instead of logging.
        return original(filename, map_location, logger or 'current')

    CheckpointLoader.load_checkpoint = staticmethod(load_checkpoint)
    # Downloads do not go through our loader.
    if 'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD' not in os.environ:
        os.environ.setdefault('TORCH_FORCE_WEIGHTS_ONLY_LOAD', '1')


def _safe_globals() -> list:
    """What mmengine's log buffers need to be loaded as weights."""
    import numpy as np
    from mmengine.logging import HistoryBuffer

    def history_buffer_method(owner: object, name: str) -> object:
        if owner is HistoryBuffer and not name.startswith('_'):
            return getattr(owner, name)
        raise pickle.UnpicklingError(f'{owner!r}.{name} is not allowed.')

    makers = [value.__reduce__()[0] for value in (np.empty(1), np.float64(0))]
    dtypes = [type(np.dtype(name)) for name in '?bBhHiIlLqQefd']
    # Instead of getattr itself, which would give access to everything.
    method = (history_buffer_method, 'builtins.getattr')
    return [HistoryBuffer, np.ndarray, np.dtype, *makers, *dtypes, method]


def load_from_local(filename: str, map_location: Any = None) -> Any:
    """Load a checkpoint file as weights and plain data."""
    import torch

    path = os.path.expanduser(filename)
    if not os.path.isfile(path):
        raise MissingFileError(
            f'The checkpoint {filename} does not exist: give the path to a '
            '.pth file.'
        )
    try:
        return torch.load(path, map_location=map_location, weights_only=True)
    except (pickle.UnpicklingError, EOFError, LookupError, RuntimeError) as e:
        raise SettingError(
            f'The checkpoint {filename} is damaged or contains more than '
            'weights, and nothing in it was executed: copy it again or, if '
            'you trust it, save its state_dict alone with torch.save.'
        ) from e


def patch_image_loading() -> None:
    """Name the file when an image is empty or damaged; mmcv does not."""
    import cv2
    from mmcv.transforms import LoadImageFromFile

    load = LoadImageFromFile.transform

    @functools.wraps(load)
    def transform(self: LoadImageFromFile, results: dict) -> dict | None:
        try:
            return load(self, results)
        except (AssertionError, cv2.error) as error:
            raise DataSetError(
                f'The image {results["img_path"]} is empty or damaged: copy '
                'it again, or remove it from the data set.'
            ) from error

    LoadImageFromFile.transform = transform
