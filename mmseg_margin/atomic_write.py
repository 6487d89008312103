"""Files that are complete or not there, whatever happens while writing."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

StrPath = str | os.PathLike[str]


@contextmanager
def atomic_write(path: StrPath) -> Iterator[Path]:
    """A path to write to, which becomes ``path`` only once it is complete.

    A full disk or any other error leaves ``path`` as it was and nothing
    beside it; a kill may leave the draft, ``.<name>.<random>.tmp``.
    """
    target = Path(os.path.realpath(path))  # the link stays a link
    if target.exists() and not target.is_file():
        yield target  # a device or a pipe cannot be replaced
        return
    with atomic_replace(target) as draft:
        yield draft


@contextmanager
def atomic_replace(path: Path) -> Iterator[Path]:
    """The same, but whatever stands there gives way, be it a link."""
    draft = path.with_name(f'.{path.name}.{uuid.uuid4().hex}.tmp')
    try:
        yield draft
        # The bytes have to be on the disk before the name is.
        with draft.open('rb') as file:
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def atomic_write_text(path: StrPath, text: str) -> None:
    """Write a text file in UTF-8, whole or not at all."""
    with atomic_write(path) as draft:
        draft.write_text(text, encoding='utf-8')
