"""A report as one HTML page that needs nothing but itself."""

import base64
import html
import re

from mmseg_margin.terminal import printable

from .document import Block, Code, Document, Gallery, Picture, Table
from .style import STYLE
from .text import Bold

# Nothing is ever loaded or run, whatever a name in the data tries.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def render_html(document: Document) -> str:
    """The whole page."""
    links = ''.join(
        f'<li><a href="#{_anchor(section.title)}">{escape(section.title)}'
        '</a></li>'
        for section in document.sections
    )
    warnings = ''.join(
        f'<p class="warning">{escape(text)}</p>' for text in document.warnings
    )
    sections = '\n'.join(
        f'<section id="{_anchor(section.title)}">\n'
        f'<h2>{escape(section.title)}</h2>\n'
        + '\n'.join(map(_render, section.blocks))
        + '\n</section>'
        for section in document.sections
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(document.title)}</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>{escape(document.title)}</h1>
<p class="subtitle">{escape(document.subtitle)}</p>
<p class="summary">{escape(document.summary)}</p>
{warnings}
</header>
<nav aria-label="Contents"><ul>{links}</ul></nav>
<main>
{sections}
</main>
</body>
</html>
"""


def escape(text: str) -> str:
    """Text that shows as it is, in an element or an attribute."""
    return html.escape(printable(text))


def _breakable(text: str) -> str:
    """The same for a name, which may break after its signs."""
    return re.sub('[:,=_]', r'\g<0><wbr>', escape(text))


def _anchor(title: str) -> str:
    return re.sub(r'\W+', '-', title.lower()).strip('-')


def _render(block: Block) -> str:
    match block:
        case Table():
            return _table(block)
        case Picture():
            return _picture(block)
        case Gallery():
            pictures = '\n'.join(map(_picture, block.pictures))
            return f'<div class="gallery">\n{pictures}\n</div>'
        case Code():
            lines = map(escape, block.text.splitlines())
            return '<pre>' + '\n'.join(lines) + '</pre>'
        case _:
            return f'<p>{escape(block)}</p>'


def _table(table: Table) -> str:
    caption = escape(table.caption)
    kind = ' class="numeric"' if table.numeric else ''
    header = ''.join(
        f'<th scope="col">{_breakable(text)}</th>' for text in table.header
    )
    rows = '\n'.join(f'<tr>{_row(row)}</tr>' for row in table.rows)
    return (
        f'<p class="caption">{caption}</p>\n'
        f'<div class="scroll" tabindex="0" role="region" aria-label="Table">'
        f'<table{kind}>\n<thead><tr>{header}</tr></thead>\n'
        f'<tbody>\n{rows}\n</tbody>\n</table></div>'
    )


def _row(row: list[str]) -> str:
    name, *cells = row
    return f'<th scope="row">{_breakable(name)}</th>' + ''.join(
        f'<td>{_cell(cell)}</td>' for cell in cells
    )


def _cell(cell: str) -> str:
    text = '<br>'.join(map(escape, cell.splitlines()))
    return f'<strong>{text}</strong>' if isinstance(cell, Bold) else text


def _picture(picture: Picture) -> str:
    data = base64.b64encode(picture.file.read_bytes()).decode()
    caption = escape(picture.caption)
    image = f'<img src="data:image/png;base64,{data}" alt="{caption}">'
    if picture.wide:
        image = (
            '<div class="scroll" tabindex="0" role="region" '
            f'aria-label="Picture">{image}</div>'
        )
    kind = ' class="wide"' if picture.wide else ''
    return (
        f'<figure{kind}>{image}'
        f'<figcaption>{_breakable(picture.caption)}</figcaption></figure>'
    )
