"""The statistics as a text table, and as a bar chart."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from prettytable import PrettyTable

from mmseg_margin.errors import drawable, printable
from mmseg_margin.functional import MarginOffsets, OffsetSettings

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
        settings: Settings of the margin-offsets.
        offsets: Adds columns of the margin-offsets of these settings.
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
    if settings is not None and offsets is not None:
        scale = f'tau={settings.tau_for(stats.counts):.4g}'
        if settings.largest_offset is not None:
            scale = f'largest_offset={settings.largest_offset:g} ({scale})'
        title += f'; margin-offsets for {scale}, upsilon={settings.upsilon:g}'
        columns['rho_0k'] = [f'{rho:.4g}' for rho in offsets.rho_0k]
        columns['rho_k0'] = [f'{rho:.4g}' for rho in offsets.rho_k0]
    if weights is not None:
        columns['weight'] = [f'{weight:.4g}' for weight in weights]
    table = PrettyTable()
    for name, cells in columns.items():
        table.add_column(name, cells, align='l' if name == 'class' else 'r')
    return f'{title}\n{table}'


def plot_stats(stats: ClassStats, path: str | Path) -> None:
    """Plot class fractions as bars, the most frequent class on top."""
    # Imported here, because few users of the package draw anything.
    from mmseg_margin.pictures import BLUE, picture

    order = np.argsort(stats.counts, kind='stable')
    share = 100 * np.array(stats.counts)[order] / stats.total
    names = [drawable(stats.classes[index]) for index in order]
    height = 1.6 + INCHES_PER_CLASS * len(names)
    with picture(Path(path), 11, height) as figure:
        axes = figure.subplots()
        shortest = share[share > 0].min() / 2  # so that its bar shows
        bars = axes.barh(names, np.maximum(share, shortest), color=BLUE)
        texts = [f'{x:.3g}' if x else 'absent' for x in share]
        axes.bar_label(bars, texts, padding=4)
        axes.margins(y=0.01)
        axes.set_title(drawable(stats.dataset))
        axes.set_xscale('log')
        axes.set_xlim(shortest, 100)
        axes.set_xlabel('share of the labelled pixels in % (log scale)')
