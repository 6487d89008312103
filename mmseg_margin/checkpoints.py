"""Checkpoints are written whole, and read as weights, never as programs."""

import functools
import os
import pickle
import re
import struct
import zlib
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import torch
from mmengine.dist import is_main_process
from mmengine.fileio import LocalBackend
from mmengine.logging import print_log

from .atomic_write import StrPath, atomic_write
from .errors import MissingFileError, SettingError

# What damaged files and refused pickles raise.
LOADING_ERRORS = (
    AttributeError,
    BadZipFile,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    pickle.UnpicklingError,
    struct.error,
    zlib.error,
)
ARCHIVE = b'PK\x03\x04'
NUMBERED = re.compile(r'(iter|epoch)_\d+\.pth')
RECORD = 'last_checkpoint'


class CheckpointError(SettingError):
    """A checkpoint that is damaged or holds more than weights."""


class AtomicBackend(LocalBackend):
    """mmengine's backend for local files, whose files are never half done.

    A full disk or a kill leaves the checkpoint of that name as it was.
    """

    def put(self, obj: bytes, filepath: StrPath) -> None:
        os.makedirs(os.path.dirname(filepath) or '.', exist_ok=True)
        with atomic_write(filepath) as draft:
            draft.write_bytes(obj)

    def put_text(
        self, obj: str, filepath: StrPath, encoding: str = 'utf-8'
    ) -> None:
        self.put(obj.encode(encoding), filepath)


class RemovalsAfterwards:
    """A file backend that puts off what it is told to remove."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self._removals: list[tuple[Callable[[str], None], str]] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._backend, name)
        if name in ('remove', 'rmtree'):  # the latter for deepspeed's folders
            return lambda path: self._removals.append((method, path))
        return method

    def carry_out(self, keep: Container[str | None]) -> None:
        """Remove everything at last, but for what is in use again."""
        for remove, path in self._removals:
            if path not in keep:
                remove(path)


def is_whole(path: StrPath) -> bool:
    """Whether the checksums in a checkpoint's archive are all right.

    torch does not look at them, so that damage in the middle of a file would
    become other weights.
    """
    try:
        with ZipFile(path) as archive:
            return archive.testzip() is None
    except LOADING_ERRORS:
        return False


def newest_whole_checkpoint(work_dir: str) -> str | None:
    """The last undamaged checkpoint, or None if there never was one."""
    candidates = _numbered_checkpoints(Path(work_dir))
    for path in candidates:
        if is_whole(path):
            return str(path)
        if is_main_process():
            print_log(
                f'{path} is missing or damaged, so an earlier checkpoint is '
                'looked for.'
            )
    if candidates:
        raise CheckpointError(
            f'Nothing to go on from: {", ".join(map(str, candidates))} '
            f'missing or damaged. To begin anew, delete {work_dir}/{RECORD} '
            'and these files, or name another --work-dir.'
        )
    return None


def _numbered_checkpoints(work_dir: Path) -> list[Path]:
    """What ``last_checkpoint`` names, then all others from new to old."""
    record = work_dir / RECORD
    text = record.read_text('utf-8', 'replace') if record.is_file() else ''
    named = [Path(text.strip())] if text.strip() else []
    folders = {work_dir, *(path.parent for path in named)}
    found = (
        path
        for folder in folders
        for path in folder.glob('*.pth')
        if NUMBERED.fullmatch(path.name) and path not in named
    )
    return named + sorted(found, key=os.path.getmtime, reverse=True)


def load_from_local(filename: str, map_location: Any = None) -> Any:
    """Load a checkpoint file; nothing that it holds is executed."""
    path = os.path.expanduser(filename)
    if not os.path.isfile(path):
        raise MissingFileError(
            f'The checkpoint {filename} does not exist: give the path to a '
            '.pth file.'
        )
    with open(path, 'rb') as file:
        is_archive = file.read(len(ARCHIVE)) == ARCHIVE  # or of old torch
    if is_archive and not is_whole(path):
        raise CheckpointError(
            f'The checkpoint {filename} is damaged, its checksums are wrong: '
            'copy it again, or take an earlier one.'
        )
    try:
        return torch.load(path, map_location=map_location, weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f'The checkpoint {filename} was not loaded, because it '
            f'{_reason(path)}, and nothing in it was executed: if you trust '
            'where it comes from, save its state_dict alone with torch.save '
            'and load that.'
        ) from error
    except LOADING_ERRORS as error:
        first_line = ascii(str(error).partition('\n')[0][:200])
        raise CheckpointError(
            f'The checkpoint {filename} cannot be loaded ({first_line}): copy '
            'it again, or take an earlier one.'
        ) from error


def _reason(path: str) -> str:
    """With the first few functions and classes that the file asks for."""
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except LOADING_ERRORS:
        names = []
    if not names:
        return 'is damaged or holds more than weights'
    return f'holds more than weights, {", ".join(map(ascii, names[:3]))}'


def named_download(download: Callable[..., Any]) -> Callable[..., Any]:
    """Say what to do if a loader of mmengine cannot get the weights."""

    @functools.wraps(download)
    def load(filename: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return download(filename, *args, **kwargs)
        except (ImportError, LookupError, OSError) as error:
            raise CheckpointError(
                f'The weights {filename} cannot be had ({error}): begin '
                'without them, by --cfg-options model.pretrained=None '
                'model.backbone.init_cfg=None, or name a file there.'
            ) from error

    return load
