"""Atomic writing, safe loading and choosing of checkpoints."""

import functools
import os
import pickle
import re
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
import torch
from mmengine.dist import is_main_process
from mmengine.fileio import LocalBackend
from mmengine.logging import HistoryBuffer, print_log

from .atomic_write import StrPath, atomic_write
from .errors import MissingFileError, SettingError

# Raised by damaged files and refused pickles.
LOADING_ERRORS = (
    *(AttributeError, EOFError, LookupError, OSError, RuntimeError),
    *(TypeError, ValueError, BadZipFile, struct.error, zlib.error),
    pickle.UnpicklingError,
)
ARCHIVE = b'PK\x03\x04'
NUMBERED = re.compile(r'(?:iter|epoch)_(\d+)\.pth')
RECORD = 'last_checkpoint'


class CheckpointError(SettingError):
    """A checkpoint that is damaged or contains more than weights."""


class AtomicBackend(LocalBackend):
    """mmengine's backend for local files, with atomic writes."""

    def put(self, obj: bytes, filepath: StrPath) -> None:
        os.makedirs(os.path.dirname(filepath) or '.', exist_ok=True)
        with atomic_write(filepath) as draft:
            draft.write_bytes(obj)

    def put_text(
        self, obj: str, filepath: StrPath, encoding: str = 'utf-8'
    ) -> None:
        self.put(obj.encode(encoding), filepath)


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


def is_whole(path: StrPath) -> bool:
    """Whether the checksums in a checkpoint's archive are correct.

    torch does not check them, so damage in the middle of a file would change
    weights silently.
    """
    try:
        with ZipFile(path) as archive:
            return archive.testzip() is None
    except LOADING_ERRORS:
        return False


def newest_whole_checkpoint(work_dir: str) -> str | None:
    """The last undamaged checkpoint, or None if there are no checkpoints.

    The one that ``last_checkpoint`` names comes first, then the largest
    number; copying a folder may change the times of its files.
    """
    record = Path(work_dir, RECORD)
    text = record.read_text('utf-8', 'replace') if record.is_file() else ''
    named = [Path(text.strip())] if text.strip() else []
    numbers = {
        path: int(match[1])
        for folder in {Path(work_dir), *(path.parent for path in named)}
        for path in folder.glob('*.pth')
        if (match := NUMBERED.fullmatch(path.name))
    }
    by_number = sorted(numbers, key=lambda path: -numbers[path])
    candidates = list(dict.fromkeys([*named, *by_number]))
    for path in candidates:
        if is_whole(path):
            return str(path)
        if is_main_process():
            print_log(
                f'{path} is missing or damaged, so another checkpoint is used.'
            )
    if candidates:
        raise CheckpointError(
            'Cannot resume: all checkpoints are missing or damaged '
            f'({", ".join(map(str, candidates))}). To start from scratch, '
            f'delete {work_dir}/{RECORD} and these files, or choose another '
            '--work-dir.'
        )
    return None


def load_from_local(filename: str, map_location: Any = None) -> Any:
    """Load a checkpoint file without executing code from it."""
    path = os.path.expanduser(filename)
    if not os.path.isfile(path):
        raise MissingFileError(
            f'The checkpoint {filename} does not exist: give the path to a '
            '.pth file.'
        )
    with open(path, 'rb') as file:
        # Files of torch before 1.6 are no archives.
        is_archive = file.read(len(ARCHIVE)) == ARCHIVE
    if is_archive and not is_whole(path):
        raise CheckpointError(
            f'The checkpoint {filename} is damaged (its checksums are wrong): '
            'copy it again, or use an earlier one.'
        )
    try:
        return torch.load(path, map_location=map_location, weights_only=True)
    except pickle.UnpicklingError as error:
        names = _unsafe_globals(path)
        listed = f'contains more than weights, {", ".join(names)}'
        reason = (
            listed if names else 'is damaged or contains more than weights'
        )
        raise CheckpointError(
            f'The checkpoint {filename} was not loaded, because it {reason}; '
            'nothing in it was executed. If you trust its origin, save its '
            'state_dict alone with torch.save and load that.'
        ) from error
    except LOADING_ERRORS as error:
        first_line = ascii(str(error).partition('\n')[0][:200])
        raise CheckpointError(
            f'The checkpoint {filename} cannot be loaded ({first_line}): copy '
            'it again, or use an earlier one.'
        ) from error


def _unsafe_globals(path: str) -> list[str]:
    """The first few globals that a refused file asks for."""
    with suppress(*LOADING_ERRORS):
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
        return [ascii(name) for name in names[:3]]
    return []


def checked_download(download: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a loader of mmengine: a failed download names the remedy."""

    @functools.wraps(download)
    def load(filename: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return download(filename, *args, **kwargs)
        except (ImportError, LookupError, OSError) as error:
            raise CheckpointError(
                f'The weights {filename} cannot be downloaded ({error}): '
                'train without them (--cfg-options model.pretrained=None '
                'model.backbone.init_cfg=None), or give the path of a file.'
            ) from error

    return load
