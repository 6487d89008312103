"""The look of the pictures, on matplotlib's object interface."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from mmseg_margin.atomic_write import atomic_write
from mmseg_margin.errors import drawable

DPI = 140
# Okabe and Ito's colours, which colour-blind readers can tell apart.
BLACK, ORANGE, SKY, GREEN = '#000000', '#E69F00', '#56B4E9', '#009E73'
BLUE, RED, PINK, GREY = '#0072B2', '#D55E00', '#CC79A7', '#999999'
LONGEST_NAME = 40


def short(name: str, length: int = LONGEST_NAME) -> str:
    """A name that fits into a legend, if need be cut off."""
    name = drawable(name)
    return name if len(name) <= length else f'{name[: length - 3]}...'


@contextmanager
def picture(path: Path, width: float, height: float) -> Iterator[Figure]:
    """A figure to draw in, in inches, which is then written to ``path``."""
    # Padded, because the last tick's label would touch the edge.
    padded = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.06)
    figure = Figure(figsize=(width, height), layout=padded)
    yield figure
    for axes in figure.axes:
        axes.grid(color='#dddddd', linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[['top', 'right']].set_visible(False)
    with atomic_write(path) as draft:
        figure.savefig(draft, dpi=DPI, format=path.suffix[1:] or 'png')
