"""What differs between the two stacks, and what is changed in them.

Importing this changes nothing. :func:`switch_on` does; the tools call it, and
configs for other tools import :mod:`mmseg_margin.safe_checkpoints`. What is
only reached for inside mmengine, mmseg and Optuna follows after it.
"""

import functools
import itertools
import logging
import os
import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from importlib import metadata
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

from .errors import DataSetError

INSTALL_HINT = (
    'MMSegmentation is not installed: '
    "run pip install 'mmseg_margin[onedl]' (maintained forks) "
    "or pip install 'mmseg_margin[openmmlab]' (upstream)."
)
NO_WEIGHTS_ONLY = 'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'


def has_mmseg() -> bool:
    """Whether a stack is installed, without importing it."""
    return find_spec('mmseg') is not None


@contextmanager
def quiet_import() -> Iterator[None]:
    """Leave out what the forks print, and mmcv warns of, on every import."""
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', '.*MultiScaleDeformableAttention')
        with redirect_stdout(StringIO()) as printed:
            yield
    for line in printed.getvalue().splitlines():
        if line != 'Could not import OneDL':
            print(line)


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

    with suppress(metadata.PackageNotFoundError):
        fork = metadata.distribution('onedl-mmsegmentation')
        MODULE2PACKAGE['mmseg'] = fork.name
    here = Path(__file__).parent
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

    from .checkpoints import load_from_local, named_download

    declare = getattr(torch.serialization, 'add_safe_globals', None)
    if declare is None:
        return

    def method_of_history_buffer(owner: object, name: str) -> object:
        if owner is HistoryBuffer and not name.startswith('_'):
            return getattr(owner, name)
        raise pickle.UnpicklingError(
            f'A checkpoint may not reach for {owner!r}.{name}.'
        )

    makers = [value.__reduce__()[0] for value in (np.empty(1), np.float64(0))]
    dtypes = [type(np.dtype(name)) for name in '?bBhHiIlLqQefd']
    declare([HistoryBuffer, np.ndarray, np.dtype, *makers, *dtypes])
    declare([(method_of_history_buffer, 'builtins.getattr')])
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

    from .checkpoints import AtomicBackend, RemovalsAfterwards

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


@contextmanager
def log_on_screen(
    is_shown: Callable[[logging.LogRecord], bool], format_: logging.Formatter
) -> Iterator[None]:
    """Let the loggers that mmengine makes meanwhile show only some records.

    It makes one for each runner, which at once logs hundreds of lines, so
    there is no later moment.
    """
    from mmengine.logging import MMLogger

    make = MMLogger.__init__

    @functools.wraps(make)
    def make_quiet(self: MMLogger, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        for handler in self.handlers:
            if not isinstance(handler, logging.FileHandler):
                handler.addFilter(is_shown)
                handler.setFormatter(format_)

    MMLogger.__init__ = make_quiet
    try:
        yield
    finally:
        MMLogger.__init__ = make


class ResumedBatches(itertools.chain):
    """The batches of a loader that stands where the training stands.

    Before a resumed training goes on, the forks ask an iteration-based loop's
    iterator to skip what has been trained on, and upstream's mmengine draws
    and discards it. There is nothing to skip here, nor to load.
    """

    def skip_iter(self, num_iters: int) -> None:
        """What the forks call."""


def loader_settings(runner: Any) -> Any:
    """The config of the training's data loader, or the loader itself.

    A runner need not have a config, but it keeps what it builds lazily.
    """
    return runner._train_dataloader


def is_endless(loop: Any) -> bool:
    """Whether a training loop counts iterations and not epochs."""
    return hasattr(loop, 'dataloader_iterator')


def draw_batches_from(loader: Iterable, loop: Any) -> None:
    """Let a training loop use a loader that stands at its iteration."""
    loop.dataloader = loader
    if is_endless(loop):
        can_skip = hasattr(loop.dataloader_iterator, 'skip_iter')
        nothing = itertools.repeat(None, 0 if can_skip else loop.iter)
        loop.dataloader_iterator = ResumedBatches(nothing, loader)


def weight_cross_entropy(
    loss: Any, weights: Sequence[float], criterion: Callable
) -> bool:
    """Give weights to a ``CrossEntropyLoss``, unless it has its own.

    mmseg's own function fails on ignored pixels once there are weights (in
    some versions only with ``avg_non_ignore=True``), so it is replaced in
    this loss by ``criterion``, which takes the same arguments.
    """
    if loss.class_weight is not None and loss.cls_criterion is not criterion:
        return False
    loss.class_weight = list(weights)
    loss.cls_criterion = criterion
    return True


def go_on_with_trial(study: Any, trial: Any) -> Any:
    """A running trial of an Optuna study, to report to and to finish.

    Optuna hands these out for new trials only.
    """
    from optuna.trial import Trial

    return Trial(study, trial._trial_id)
