"""The statistics as a bar chart; matplotlib is imported when it is drawn."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmseg_margin.atomic_write import atomic_write
from mmseg_margin.terminal import drawable

from .class_stats import ClassStats

SHARE_COLOUR = '#4c72b0'
MARGIN_COLOUR = '#dd8452'
INCHES_PER_CLASS = 0.3


def plot_stats(
    stats: ClassStats,
    path: str | Path,
    tau: float = 10.0,
    upsilon: float = 1.0,
) -> None:
    """Draw shares and ``rho_0k``, most frequent class on top."""
    from matplotlib.figure import Figure

    order = np.argsort(stats.counts, kind='stable')
    names = [drawable(stats.classes[index]) for index in order]
    share = 100 * np.array(stats.counts) / max(stats.total, 1)
    rho_0k = stats.margins(tau, upsilon, absent_class='zero').rho_0k
    height = 1.6 + INCHES_PER_CLASS * len(names)
    figure = Figure(figsize=(11, height), layout='constrained')
    left, right = figure.subplots(1, 2, sharey=True)
    left.set_xlabel('share of the labelled pixels in % (log scale)')
    _draw_bars(left, names, share[order], SHARE_COLOUR)
    right.set_xlabel(f'margin-offset rho_0k for tau = {tau:g} (log scale)')
    _draw_bars(right, names, rho_0k[order], MARGIN_COLOUR)
    source = stats.provenance
    if source.files:
        title = f'{source.dataset}, {source.files:,} label files'
        figure.suptitle(drawable(title))
    with atomic_write(path) as draft:
        figure.savefig(draft, dpi=120, format=Path(path).suffix[1:] or 'png')


def _draw_bars(
    axes: Any, names: list[str], values: NDArray, colour: str
) -> None:
    present = values[values > 0]
    axes.set_xscale('log')
    # Room for the shortest bar on the left and for the figures on the right.
    axes.set_xlim(present.min() / 2, present.max() * 6)
    axes.barh(names, values, color=colour)
    texts = [f'{value:.3g}' if value else 'absent' for value in values]
    for row, (value, text) in enumerate(zip(values, texts, strict=True)):
        start = value or axes.get_xlim()[0]
        axes.annotate(
            text, (start, row), (4, 0), textcoords='offset points', va='center'
        )
    axes.margins(y=0.01)
    axes.spines[['top', 'right']].set_visible(False)
