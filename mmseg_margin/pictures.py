"""The look of the pictures, on matplotlib's object interface."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from .atomic_write import atomic_write

DPI = 140
# Four of Okabe and Ito's colours, which colour-blind readers can tell apart.
ORANGE, BLUE, RED, GREY = '#E69F00', '#0072B2', '#D55E00', '#999999'


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
