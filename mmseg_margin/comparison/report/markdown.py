"""A report as Markdown with its pictures beside it."""

import re
from urllib.parse import quote

from mmseg_margin.terminal import printable

from .document import Block, Code, Document, Gallery, Picture, Table
from .text import Bold

# Underscores mean something only at the edge of a word.
SPECIAL = re.compile(r'[\\`*\[\]|~#$]|(?<!\w)_|_(?!\w)')


def render_markdown(document: Document) -> str:
    """The whole file."""
    parts = [
        f'# {escape(document.title)}',
        escape(document.subtitle),
        f'**{escape(document.summary)}**',
        *(f'> {escape(warning)}' for warning in document.warnings),
    ]
    for section in document.sections:
        parts.append(f'## {escape(section.title)}')
        parts += [_render(block) for block in section.blocks]
    return '\n\n'.join(parts) + '\n'


def escape(text: str) -> str:
    """Text that shows as it is, in a paragraph or in a table cell."""
    text = SPECIAL.sub(r'\\\g<0>', printable(text))
    return text.replace('&', '&amp;').replace('<', '&lt;')


def _render(block: Block) -> str:
    match block:
        case Table():
            return _table(block)
        case Picture():
            return _picture(block)
        case Gallery():
            return '\n\n'.join(map(_picture, block.pictures))
        case Code():
            # An indented block cannot be closed by what it holds.
            lines = block.text.splitlines()
            return '\n'.join(f'    {printable(line)}' for line in lines)
        case _:
            return escape(block)


def _table(table: Table) -> str:
    rule = '|---:' if table.numeric else '|---'
    lines = [
        _row(table.header),
        f'|---{rule * (len(table.header) - 1)}|',
        *map(_row, table.rows),
    ]
    return f'{escape(table.caption)}\n\n' + '\n'.join(lines)


def _row(cells: list[str]) -> str:
    return f'| {" | ".join(map(_cell, cells))} |'


def _cell(cell: str) -> str:
    text = escape(' '.join(cell.splitlines()))
    return f'**{text}**' if isinstance(cell, Bold) else text


def _picture(picture: Picture) -> str:
    caption = escape(picture.caption)
    return f'![{caption}]({quote(picture.file.name)})\n\n{caption}'
