"""Writes a report as one HTML page that needs nothing but itself.

Names of classes and objectives come from outside, so whatever a page holds is
plain text and is escaped by the template.
"""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.errors import printable


class Bold(str):
    """A table cell that is set in bold."""

    __slots__ = ()


class Table(NamedTuple):
    """Columns of text by their titles; the first one names the rows."""

    columns: Mapping[str, Iterable[str]]
    caption: str
    numeric: bool = True

    @property
    def rows(self) -> Iterable[tuple[str, ...]]:
        return zip(*self.columns.values(), strict=True)


class Picture(NamedTuple):
    """A PNG file."""

    file: Path
    caption: str


# A string is a paragraph; None is left out.
Block = str | Table | Picture | None


class Page(NamedTuple):
    """A report: its sections by their titles, without the empty ones."""

    title: str
    subtitle: str
    summary: str
    sections: Mapping[str, Sequence[Block]]
    warnings: Sequence[str] = ()

    def write(self, path: Path) -> None:
        sections = {}
        for title, blocks in self.sections.items():
            if found := [block for block in blocks if block is not None]:
                sections[title] = found
        environment = Environment(
            loader=PackageLoader('mmseg_margin.report'),
            autoescape=True,
            finalize=_shown,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.tests['bold'] = lambda cell: isinstance(cell, Bold)
        environment.filters.update(
            anchor=lambda title: re.sub(r'\W+', '-', title.lower()),
            breakable=_breakable,
            base64=lambda file: base64.b64encode(file.read_bytes()).decode(),
        )
        template = environment.get_template('page.html')
        content = self._replace(sections=sections)._asdict()
        atomic_write_text(path, template.render(content))


def _shown(value: Any) -> Any:
    return value if isinstance(value, Markup) else printable(str(value))


def _breakable(name: str) -> Markup:
    """A name that may break after its punctuation."""
    return Markup(re.sub('[:,=_]', r'\g<0><wbr>', escape(printable(name))))
