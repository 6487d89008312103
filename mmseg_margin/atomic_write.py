"""Atomic writes: a file is complete or absent, even after a crash."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

StrPath = str | os.PathLike[str]


@contextmanager
def atomic_write(path: StrPath) -> Iterator[Path]:
    """A path to write to, which is renamed to ``path`` once it is complete.

    A full disk or any other error leaves ``path`` unchanged and no other file
    beside it; a kill may leave the draft, ``.<name>.<random>.tmp``.
    """
    target = Path(os.path.realpath(path))  # replaces the target of a link
    if target.exists() and not target.is_file():
        yield target  # a device or a pipe cannot be replaced
        return
    draft = target.with_name(f'.{target.name}.{uuid.uuid4().hex}.tmp')
    try:
        yield draft
        # The content has to be on the disk before the name is.
        with draft.open('rb') as file:
            os.fsync(file.fileno())
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def atomic_write_text(path: StrPath, text: str) -> None:
    """Write a text file in UTF-8, atomically."""
    with atomic_write(path) as draft:
        draft.write_text(text, encoding='utf-8')
