"""What the benchmarks read and print."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from mmseg_margin.errors import SettingError


def parse_shape(shape: str) -> list[int]:
    """The sizes of ``2x19x512x1024x4``."""
    sizes = shape.split('x')
    if len(sizes) != 5 or not all(x.isdecimal() and int(x) for x in sizes):
        raise SettingError(f'{shape!r} is not a shape NxKxHxWxS.')
    return [int(size) for size in sizes]


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]
) -> None:
    """The first column has the names of the rows."""
    table = Table(title=title, title_justify='left')
    for index, column in enumerate(columns):
        table.add_column(column, justify='right' if index else 'left')
    for row in rows:
        table.add_row(*row)
    Console().print(table)
