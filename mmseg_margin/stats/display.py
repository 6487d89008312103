"""The statistics as a text table, and as a bar chart."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prettytable import PrettyTable

from mmseg_margin.atomic_write import atomic_write
from mmseg_margin.terminal import drawable, printable

from .class_stats import ClassStats

SHARE_COLOUR = '#4c72b0'
MARGIN_COLOUR = '#dd8452'
INCHES_PER_CLASS = 0.3


def format_table(
    stats: ClassStats,
    tau: float = 10.0,
    upsilon: float = 1.0,
    weights: Sequence[float] | None = None,
) -> str:
    """Pixels, share, images and margin-offsets of every class."""
    table = PrettyTable(
        ['class', 'pixels', 'share %', 'images', 'rho_0k', 'rho_k0']
    )
    table.align = 'r'
    table.align['class'] = 'l'
    margins = margin_columns(stats, tau, upsilon)
    columns = zip(
        stats.classes, stats.counts, stats.images, margins, strict=True
    )
    for name, count, images, (rho_0k, rho_k0) in columns:
        share = f'{100 * count / max(stats.total, 1):.4f}'
        figures = [f'{count:,}', share, f'{images:,}', rho_0k, rho_k0]
        table.add_row([printable(name), *figures])
    if weights is not None:
        texts = [f'{weight:.4g}' for weight in weights]
        table.add_column('weight', texts, align='r')
    source = stats.provenance
    return (
        f'{source.files:,} label files of {printable(source.dataset)}: '
        f'{stats.total:,} labelled and {stats.ignored:,} ignored pixels; '
        f'margin-offsets for tau={tau:g}, upsilon={upsilon:g}\n{table}'
    )


def margin_columns(
    stats: ClassStats, tau: float, upsilon: float
) -> list[tuple[str, str]]:
    """``rho_0k`` and ``rho_k0`` as text; a dash where there is none."""
    try:
        rho_0k, rho_k0 = stats.margins(tau, upsilon, absent_class='zero')
    except ValueError:  # a single class, or no labelled pixel at all
        return [('-', '-')] * len(stats.classes)
    return [
        (f'{a:.4g}', f'{b:.4g}') if count else ('-', '-')
        for a, b, count in zip(rho_0k, rho_k0, stats.counts, strict=True)
    ]


def plot_stats(
    stats: ClassStats,
    path: str | Path,
    tau: float = 10.0,
    upsilon: float = 1.0,
) -> None:
    """Draw shares and ``rho_0k`` if any, most frequent class on top."""
    # Here, because few who import the package draw anything.
    from matplotlib.figure import Figure

    order = np.argsort(stats.counts, kind='stable')
    names = [drawable(stats.classes[index]) for index in order]
    share = 100 * np.array(stats.counts) / max(stats.total, 1)
    rho_0k = stats.margins(tau, upsilon, absent_class='zero').rho_0k
    height = 1.6 + INCHES_PER_CLASS * len(names)
    panels = [('share of the labelled pixels in %', share, SHARE_COLOUR)]
    if rho_0k.any():
        margin = f'margin-offset rho_0k for tau = {tau:g}'
        panels.append((margin, rho_0k, MARGIN_COLOUR))
    figure = Figure(figsize=(11, height), layout='constrained')
    row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (what, values, colour) in zip(row, panels, strict=True):
        axes.set_xlabel(f'{what} (log scale)')
        _draw_bars(axes, names, values[order], colour)
    source = stats.provenance
    if source.files:
        title = f'{source.dataset}, {source.files:,} label files'
        figure.suptitle(drawable(title))
    with atomic_write(path) as draft:
        figure.savefig(draft, dpi=120, format=Path(path).suffix[1:] or 'png')


def _draw_bars(
    axes: Any, names: list[str], values: NDArray, colour: str
) -> None:
    # Room for the shortest bar on the left and for the figures on the right.
    left, right = values[values > 0].min() / 2, values.max() * 6
    axes.set(xscale='log', xlim=(left, right))
    bars = axes.barh(names, np.maximum(values, left), color=colour)
    texts = [f'{value:.3g}' if value else 'absent' for value in values]
    axes.bar_label(bars, texts, padding=4)
    axes.margins(y=0.01)
    axes.spines[['top', 'right']].set_visible(False)
