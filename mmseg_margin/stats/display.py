"""The statistics as a text table, and as a bar chart."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prettytable import PrettyTable

from mmseg_margin.atomic_write import atomic_write
from mmseg_margin.errors import SettingError
from mmseg_margin.functional import MarginOffsets, OffsetSettings
from mmseg_margin.terminal import drawable, printable

from .class_stats import ClassStats

SHARE_COLOUR = '#4c72b0'
OFFSET_COLOUR = '#dd8452'
INCHES_PER_CLASS = 0.3


def format_table(
    stats: ClassStats,
    offsets: OffsetSettings | None = None,
    weights: Sequence[float] | None = None,
) -> str:
    """Pixels, their percentage, and images of every class as a table.

    Args:
        offsets: Adds the margin-offsets of these settings, if the counts
            have any.
        weights: Adds a column of class weights.
    """
    table = PrettyTable(['class', 'pixels', 'share %', 'images'])
    for name, count, images in zip(
        stats.classes, stats.counts, stats.images, strict=True
    ):
        share = f'{100 * count / max(stats.total, 1):.4f}'
        table.add_row([printable(name), f'{count:,}', share, f'{images:,}'])
    source = stats.provenance
    title = (
        f'{source.files:,} label files of {printable(source.dataset)}: '
        f'{stats.total:,} labelled and {stats.ignored:,} ignored pixels'
    )
    if offsets is not None:
        title += _describe_offsets(stats, offsets)
        columns = zip(*offset_columns(stats, offsets), strict=True)
        for name, texts in zip(('rho_0k', 'rho_k0'), columns, strict=True):
            table.add_column(name, list(texts))
    if weights is not None:
        table.add_column('weight', [f'{weight:.4g}' for weight in weights])
    table.align = 'r'
    table.align['class'] = 'l'
    return f'{title}\n{table}'


def offset_columns(
    stats: ClassStats, offsets: OffsetSettings
) -> list[tuple[str, str]]:
    """``rho_0k`` and ``rho_k0`` of each class; a dash where undefined."""
    found = _offsets_if_any(stats, offsets)
    if found is None:
        return [('-', '-')] * len(stats.classes)
    return [
        (f'{a:.4g}', f'{b:.4g}') if count or a else ('-', '-')
        for a, b, count in zip(*found, stats.counts, strict=True)
    ]


def _offsets_if_any(
    stats: ClassStats, offsets: OffsetSettings
) -> MarginOffsets | None:
    """None if the counts have no offsets, for example of a single class."""
    if offsets.absent_class == 'error':
        offsets = replace(offsets, absent_class='zero')
    try:
        return offsets.offsets(stats.counts)
    except SettingError:
        return None


def _describe_offsets(stats: ClassStats, offsets: OffsetSettings) -> str:
    if _offsets_if_any(stats, offsets) is None:
        return ''
    scale = f'tau={offsets.tau_for(stats.counts):.4g}'
    if offsets.largest_offset is not None:
        scale = f'largest_offset={offsets.largest_offset:g} ({scale})'
    return f'; margin-offsets for {scale}, upsilon={offsets.upsilon:g}'


def plot_stats(
    stats: ClassStats,
    path: str | Path,
    offsets: OffsetSettings | None = None,
) -> None:
    """Plot class fractions, and ``rho_0k`` if any, most frequent on top."""
    # Imported here, because few users of the package draw anything.
    from matplotlib.figure import Figure

    if not stats.total:
        raise SettingError('There is no labelled pixel to plot.')
    order = np.argsort(stats.counts, kind='stable')
    names = [drawable(stats.classes[index]) for index in order]
    share = 100 * np.array(stats.counts) / max(stats.total, 1)
    panels = [('share of the labelled pixels in %', share, SHARE_COLOUR)]
    found = _offsets_if_any(stats, offsets) if offsets else None
    if offsets and found and found.rho_0k.any():
        tau = offsets.tau_for(stats.counts)
        title = f'margin-offset rho_0k for tau = {tau:.4g}'
        panels.append((title, found.rho_0k, OFFSET_COLOUR))
    height = 1.6 + INCHES_PER_CLASS * len(names)
    figure = Figure(figsize=(11, height), layout='constrained')
    row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (label, values, colour) in zip(row, panels, strict=True):
        axes.set_xlabel(f'{label} (log scale)')
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
    # Space for the shortest bar on the left and for the numbers on the right.
    left, right = values[values > 0].min() / 2, values.max() * 6
    axes.set(xscale='log', xlim=(left, right))
    bars = axes.barh(names, np.maximum(values, left), color=colour)
    texts = [f'{value:.3g}' if value else 'absent' for value in values]
    axes.bar_label(bars, texts, padding=4)
    axes.margins(y=0.01)
    axes.spines[['top', 'right']].set_visible(False)
