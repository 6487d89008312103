"""The statistics as a text table, and as a bar chart."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from prettytable import PrettyTable

from mmseg_margin.errors import SettingError
from mmseg_margin.functional import MarginOffsets, OffsetSettings
from mmseg_margin.terminal import drawable, printable

from .class_stats import ClassStats

INCHES_PER_CLASS = 0.3


def format_table(
    stats: ClassStats,
    settings: OffsetSettings | None = None,
    offsets: MarginOffsets | None = None,
    weights: Sequence[float] | None = None,
) -> str:
    """Pixels, their percentage, and images of every class as a table.

    Args:
        settings: Adds the columns of the margin-offsets.
        offsets: The margin-offsets of these settings; None if the counts
            have none.
        weights: Adds a column of class weights.
    """
    total = stats.total
    title = (
        f'{stats.files:,} label files of {printable(stats.dataset)}: '
        f'{total:,} labelled and {stats.ignored:,} ignored pixels'
    )
    columns = {
        'class': [printable(name) for name in stats.classes],
        'pixels': [f'{n:,}' for n in stats.counts],
        'share %': [f'{100 * n / max(total, 1):.4f}' for n in stats.counts],
        'images': [f'{n:,}' for n in stats.images],
    }
    if settings is not None:
        pairs = _offset_cells(stats, offsets)
        columns['rho_0k'] = [rho_0k for rho_0k, _ in pairs]
        columns['rho_k0'] = [rho_k0 for _, rho_k0 in pairs]
    if settings is not None and offsets is not None:
        scale = f'tau={settings.tau_for(stats.counts):.4g}'
        if settings.largest_offset is not None:
            scale = f'largest_offset={settings.largest_offset:g} ({scale})'
        title += f'; margin-offsets for {scale}, upsilon={settings.upsilon:g}'
    if weights is not None:
        columns['weight'] = [f'{weight:.4g}' for weight in weights]
    table = PrettyTable()
    for name, cells in columns.items():
        table.add_column(name, cells, align='l' if name == 'class' else 'r')
    return f'{title}\n{table}'


def _offset_cells(
    stats: ClassStats, offsets: MarginOffsets | None
) -> list[tuple[str, str]]:
    if offsets is None:
        return [('-', '-')] * len(stats.classes)
    return [
        (f'{a:.4g}', f'{b:.4g}') if count or a else ('-', '-')
        for a, b, count in zip(*offsets, stats.counts, strict=True)
    ]


def plot_stats(
    stats: ClassStats,
    path: str | Path,
    offsets: MarginOffsets | None = None,
) -> None:
    """Plot class fractions, and ``rho_0k`` if any, most frequent on top."""
    # Imported here, because few users of the package draw anything.
    from mmseg_margin.pictures import BLUE, ORANGE, picture

    if not stats.total:
        raise SettingError('There is no labelled pixel to plot.')
    order = np.argsort(stats.counts, kind='stable')
    names = [drawable(stats.classes[index]) for index in order]
    share = 100 * np.array(stats.counts) / stats.total
    panels = [('share of the labelled pixels in %', share, 100.0, BLUE)]
    if offsets is not None and offsets.rho_0k.any():
        rho_0k = offsets.rho_0k
        panels.append(('margin-offset rho_0k', rho_0k, rho_0k.max(), ORANGE))
    height = 1.6 + INCHES_PER_CLASS * len(names)
    with picture(Path(path), 11, height) as figure:
        row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, panel in zip(row, panels, strict=True):
            label, values, longest, colour = panel
            shortest = values[values > 0].min() / 2  # so that its bar shows
            axes.set(xlabel=f'{label} (log scale)', xscale='log')
            axes.set_xlim(shortest, longest)
            lengths = np.maximum(values[order], shortest)
            bars = axes.barh(names, lengths, color=colour)
            texts = [f'{x:.3g}' if x else 'absent' for x in values[order]]
            axes.bar_label(bars, texts, padding=4)
            axes.margins(y=0.01)
        if stats.files:
            title = f'{stats.dataset}, {stats.files:,} label files'
            figure.suptitle(drawable(title))
