"""What a report consists of, whether it becomes HTML or Markdown.

All texts are plain; escaping them is up to the renderers.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Table:
    """Rows of texts, the first of each naming the row; some are Bold.

    A cell may have several lines.
    """

    caption: str
    header: list[str]
    rows: list[list[str]]
    numeric: bool = True


@dataclass(frozen=True)
class Picture:
    """A PNG file beside the report; a wide one is scrolled, not shrunk."""

    caption: str
    file: Path
    wide: bool = False


@dataclass(frozen=True)
class Gallery:
    """Pictures beside each other where there is room."""

    pictures: list[Picture]


@dataclass(frozen=True)
class Code:
    """Lines to be shown as they are."""

    text: str


# A plain text is a paragraph.
Block = str | Table | Picture | Gallery | Code


@dataclass(frozen=True)
class Section:
    title: str
    blocks: list[Block]


@dataclass(frozen=True)
class Document:
    """Titles, the one sentence to remember, what limits it, and the rest."""

    title: str
    subtitle: str
    summary: str
    warnings: list[str]
    sections: list[Section]
