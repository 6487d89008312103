"""Writes a report as one HTML page, and the same as Markdown.

What a report says stands in ``templates/<report>.txt``, how it looks in
``page.html`` and ``page.md``. Whatever is put into them is plain text and
shows as it is, because names of classes and objectives come from outside.
"""

import base64
import html
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.terminal import printable

# Underscores mean something in Markdown only at the edge of a word.
SPECIAL = re.compile(r'[\\`*\[\]|~#$]|(?<!\w)_|_(?!\w)')


class Bold(str):
    """A table cell that stands out."""

    __slots__ = ()


class Table(NamedTuple):
    """Texts; the first of each row names it. A cell may have several lines."""

    header: list[str]
    rows: list[list[str]]
    numeric: bool = True

    @classmethod
    def of_columns(cls, columns: Mapping[str, Iterable[str]]) -> 'Table':
        """From columns, by what stands above them."""
        rows = zip(*columns.values(), strict=True)
        return cls(list(columns), [list(row) for row in rows])


def write_pages(folder: Path, report: str, **values: Any) -> Path:
    """Write ``index.html`` and ``report.md``; return the former's path.

    The pictures are in the folder. The report names the template, which needs
    the values, and a ``summary`` and ``warnings`` if it does not set them.
    """
    page = folder / 'index.html'
    for look, path, escape in (
        ('page.md', folder / 'report.md', escape_markdown),
        ('page.html', page, html.escape),
    ):
        template = _environment(escape).get_template(f'{report}.txt')
        text = template.render(page=look, titles=[], **values)
        text = re.sub(r'\n{3,}', '\n\n', text.strip()) + '\n'
        atomic_write_text(path, text)
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
        # A name may break after its signs.
        breakable=lambda name: Markup(
            re.sub('[:,=_]', r'\g<0><wbr>', str(escaped(name)))
        ),
        data_address=_data_address,
        lines=lambda cell, separator: Markup(separator).join(
            map(escaped, cell.splitlines())
        ),
        one_line=lambda text: Markup(' '.join(text.split())),
        verbatim=lambda line: Markup(printable(line)),
    )
    return environment


def _data_address(picture: Path) -> str:
    data = base64.b64encode(picture.read_bytes()).decode()
    return f'data:image/png;base64,{data}'
