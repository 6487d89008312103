"""The look of the pictures, on matplotlib's object interface."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from mmseg_margin.atomic_write import atomic_write
from mmseg_margin.terminal import drawable

DPI = 140
# Okabe and Ito's, for the objectives of tools/train.py.
FIXED = {
    'margin': '#D55E00',
    'ce': '#000000',
    'wce': '#56B4E9',
    'focal': '#E69F00',
    'lovasz': '#0072B2',
    'dice': '#009E73',
    'tversky': '#CC79A7',
}
# Tol's, for any other.
SPARE = ('#882255', '#999933', '#332288', '#44AA99', '#777777')


def colours_of(names: list[str]) -> dict[str, str]:
    """One colour for each, told apart by colour-blind readers too."""
    spare = cycle(SPARE)
    return {name: FIXED.get(name) or next(spare) for name in names}


def title_lines(objective: str) -> str:
    """The title of a picture, its settings on lines of their own."""
    return drawable(objective).replace(':', '\n').replace(',', '\n')


@contextmanager
def picture(path: Path, width: float, height: float) -> Iterator[Figure]:
    """A figure to draw in, in inches, which is written as a PNG file."""
    # Padded, or the last tick's label would touch the edge.
    padded = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.06)
    figure = Figure(figsize=(width, height), layout=padded)
    yield figure
    # A quiet grid behind what is drawn, and no box around it.
    for axes in figure.axes:
        axes.grid(color='#dddddd', linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[['top', 'right']].set_visible(False)
    with atomic_write(path) as draft:
        figure.savefig(draft, dpi=DPI, format='png')
