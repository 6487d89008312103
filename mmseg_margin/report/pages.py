"""Writes a report as one HTML page, and the same as Markdown.

Names of classes and objectives come from outside, so whatever a page holds is
plain text and is escaped by the templates.
"""

import base64
import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.terminal import printable

# Underscores mean something in Markdown only at the edge of a word.
SPECIAL = re.compile(r'[\\`*\[\]|~#$]|(?<!\w)_|_(?!\w)')


class Bold(str):
    """A table cell that is set in bold."""

    __slots__ = ()


class Code(str):
    """Lines that are shown as they are."""

    is_code = True


class Table(NamedTuple):
    """Cells as text, with line breaks or bold; the first of a row names it."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ''
    numeric: bool = True

    @classmethod
    def of_columns(
        cls, columns: Mapping[str, Iterable[str]], caption: str = ''
    ) -> 'Table':
        rows = zip(*columns.values(), strict=True)
        return cls(list(columns), [list(row) for row in rows], caption)


class Picture(NamedTuple):
    """A PNG file in the folder of the page."""

    file: Path
    caption: str
    wide: bool = False


# A string is a paragraph, a list of pictures a gallery; None is left out.
Block = str | Code | Table | Picture | list[Picture] | None


class Page(NamedTuple):
    """A report: its sections by their titles, without the empty ones."""

    title: str
    subtitle: str
    summary: str
    sections: Mapping[str, Iterable[Block]]
    warnings: Sequence[str] = ()

    def write(self, folder: Path) -> Path:
        """Write ``report.md`` and ``index.html``; return the latter."""
        sections = {}
        for title, blocks in self.sections.items():
            if found := [block for block in blocks if block is not None]:
                sections[title] = found
        content = self._replace(sections=sections)._asdict()
        for name, escape in (
            ('report.md', escape_markdown),
            ('index.html', html.escape),
        ):
            page = folder / name
            look = _environment(escape).get_template(f'page{page.suffix}')
            text = re.sub(r'\n{3,}', '\n\n', look.render(content).strip())
            atomic_write_text(page, f'{text}\n')
        return page


def escape_markdown(text: str) -> str:
    """Text that shows as it is, in a paragraph or in a table cell."""
    text = SPECIAL.sub(r'\\\g<0>', text)
    return text.replace('&', '&amp;').replace('<', '&lt;')


def _environment(escape: Callable[[str], str]) -> Environment:
    def escaped(value: Any) -> Markup:
        if isinstance(value, Markup):
            return value
        return Markup(escape(printable(str(value))))

    environment = Environment(
        loader=PackageLoader('mmseg_margin.report'),
        autoescape=True,
        # Before Jinja's own escaping, which lets markup pass.
        finalize=escaped,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests['bold'] = lambda cell: isinstance(cell, Bold)
    environment.filters.update(
        anchor=lambda title: re.sub(r'\W+', '-', title.lower()).strip('-'),
        # A name may break after its punctuation.
        breakable=lambda name: Markup(
            re.sub('[:,=_]', r'\g<0><wbr>', str(escaped(name)))
        ),
        data_address=lambda file: (
            'data:image/png;base64,'
            + base64.b64encode(file.read_bytes()).decode()
        ),
        lines=lambda cell, separator: Markup(separator).join(
            map(escaped, cell.splitlines())
        ),
        verbatim=lambda line: Markup(printable(line)),
    )
    return environment
