"""What is corrected in an installed stack, by one call and never unasked."""

import functools
import os
import pickle
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from mmseg_margin.errors import DataSetError

NO_WEIGHTS_ONLY = 'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'


@functools.cache
def switch_on() -> None:
    """Correct the installed stack, for the whole process.

    From then on ``mmseg::`` and ``mmseg_margin::`` bases of configs are found,
    and checkpoints are written whole and read as weights.
    """
    let_configs_inherit()
    let_checkpoints_load()
    let_checkpoints_be_whole()
    let_bad_images_be_named()


def let_configs_inherit() -> None:
    """Make ``_base_ = 'mmseg::...'`` and ``'mmseg_margin::...'`` resolve.

    mmengine turns the scope ``mmseg`` into the name of the distribution that
    holds its configs through a table. The forks renamed the distribution and
    left the table alone, so every such config fails to load. Ours are found
    beside the package, and their types in the registries of ``mmseg``.
    """
    from mmengine.config import Config
    from mmengine.config.utils import MODULE2PACKAGE

    if _is_distribution('onedl-mmsegmentation'):
        MODULE2PACKAGE['mmseg'] = 'onedl-mmsegmentation'
    here = Path(__file__).parents[1]
    configs = here / '.mim' / 'configs'  # as setup.py installs them
    if not configs.is_dir():
        configs = here.parent / 'configs'
    path_and_scope = Config._get_cfg_path

    def find_base(base: str, filename: str) -> tuple[str, str | None]:
        scope, _, name = base.partition('::')
        if scope == here.name:
            return str(configs / name), 'mmseg'
        return path_and_scope(base, filename)

    Config._get_cfg_path = staticmethod(find_base)


def let_checkpoints_load() -> None:
    """Make mmengine load checkpoints as weights, its own ones included.

    Since torch 2.6 ``torch.load`` accepts nothing but tensors and what is
    declared safe. mmengine keeps its log buffers in every checkpoint, so
    upstream's own ones are refused, and the forks load whatever is refused
    once more as arbitrary pickle. Here the log buffers are declared, and
    files go through a loader that refuses all the rest. A variable of torch
    makes it refuse downloads too, unless the user has set the opposite one.
    """
    import numpy as np
    import torch
    from mmengine.logging import HistoryBuffer
    from mmengine.runner import CheckpointLoader

    from mmseg_margin.checkpoints import load_from_local, named_download

    declare = getattr(torch.serialization, 'add_safe_globals', None)
    if declare is None:
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
    dtypes = [type(np.dtype(name)) for name in '?bBhHiIlLqQefd']
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
    schemes = CheckpointLoader._schemes
    for prefix, download in schemes.items():
        schemes[prefix] = named_download(download)
    CheckpointLoader.register_scheme('', load_from_local, force=True)
    if NO_WEIGHTS_ONLY not in os.environ:
        os.environ.setdefault('TORCH_FORCE_WEIGHTS_ONLY_LOAD', '1')


def let_checkpoints_be_whole() -> None:
    """Make mmengine replace a file only once the new one is complete.

    Its hook removes the oldest checkpoint, and the best one so far, before it
    writes the next; a full disk or a kill could leave none.
    """
    from mmengine.fileio import register_backend
    from mmengine.hooks import CheckpointHook

    from mmseg_margin.checkpoints import AtomicBackend, RemovalsAfterwards

    register_backend('local', AtomicBackend, force=True, prefixes='')

    def removing_last(save: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(save)
        def saving(hook: Any, *args: Any, **kwargs: Any) -> None:
            backend = hook.file_backend
            hook.file_backend = removals = RemovalsAfterwards(backend)
            try:
                save(hook, *args, **kwargs)
            finally:
                hook.file_backend = backend
            # A resumed training may write what it has marked for removal.
            best = getattr(hook, 'best_ckpt_path_dict', {}).values()
            one = getattr(hook, 'best_ckpt_path', None)
            removals.carry_out({hook.last_ckpt, one, *best})

        return saving

    for name in ('_save_checkpoint_with_step', '_save_best_checkpoint'):
        save = getattr(CheckpointHook, name)
        setattr(CheckpointHook, name, removing_last(save))


def let_bad_images_be_named() -> None:
    """Make an emptied or damaged image an error that names the file."""
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
                'it again, or take it out of the data set.'
            ) from error

    LoadImageFromFile.transform = transform


def _is_distribution(name: str) -> bool:
    """Whether pip knows an installed distribution of that name."""
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True
