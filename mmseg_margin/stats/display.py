"""The statistics as a text table, and as a bar chart."""

from collections.abc import Sequence
from dataclasses import replace
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
    offsets: OffsetSettings | None = None,
    weights: Sequence[float] | None = None,
) -> str:
    """Pixels, their percentage, and images of every class as a table.

    Args:
        offsets: Adds the margin-offsets of these settings, if the counts
            have any.
        weights: Adds a column of class weights.
    """
    total, source = stats.total, stats.provenance
    title = (
        f'{source.files:,} label files of {printable(source.dataset)}: '
        f'{total:,} labelled and {stats.ignored:,} ignored pixels'
    )
    columns = {
        'class': [printable(name) for name in stats.classes],
        'pixels': [f'{n:,}' for n in stats.counts],
        'share %': [f'{100 * n / max(total, 1):.4f}' for n in stats.counts],
        'images': [f'{n:,}' for n in stats.images],
    }
    if offsets is not None:
        pairs = offset_columns(stats, offsets)
        columns['rho_0k'] = [rho_0k for rho_0k, _ in pairs]
        columns['rho_k0'] = [rho_k0 for _, rho_k0 in pairs]
        if _offsets_if_any(stats, offsets) is not None:
            scale = f'tau={offsets.tau_for(stats.counts):.4g}'
            if offsets.largest_offset is not None:
                scale = f'largest_offset={offsets.largest_offset:g} ({scale})'
            title += f'; margin-offsets for {scale}, '
            title += f'upsilon={offsets.upsilon:g}'
    if weights is not None:
        columns['weight'] = [f'{weight:.4g}' for weight in weights]
    table = PrettyTable()
    for name, cells in columns.items():
        table.add_column(name, cells, align='l' if name == 'class' else 'r')
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


def plot_stats(
    stats: ClassStats,
    path: str | Path,
    offsets: OffsetSettings | None = None,
) -> None:
    """Plot class fractions, and ``rho_0k`` if any, most frequent on top."""
    # Imported here, because few users of the package draw anything.
    from mmseg_margin.report.pictures import BLUE, ORANGE, picture

    if not stats.total:
        raise SettingError('There is no labelled pixel to plot.')
    order = np.argsort(stats.counts, kind='stable')
    names = [drawable(stats.classes[index]) for index in order]
    share = 100 * np.array(stats.counts) / stats.total
    panels = [('share of the labelled pixels in %', share, BLUE)]
    found = _offsets_if_any(stats, offsets) if offsets else None
    if offsets and found and found.rho_0k.any():
        tau = offsets.tau_for(stats.counts)
        label = f'margin-offset rho_0k for tau = {tau:.4g}'
        panels.append((label, found.rho_0k, ORANGE))
    source, height = stats.provenance, 1.6 + INCHES_PER_CLASS * len(names)
    with picture(Path(path), 11, height) as figure:
        row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (label, values, colour) in zip(row, panels, strict=True):
            # Space for the shortest bar on the left, for numbers on the right.
            limits = values[values > 0].min() / 2, values.max() * 6
            axes.set(xlabel=f'{label} (log scale)', xscale='log', xlim=limits)
            lengths = np.maximum(values[order], limits[0])
            bars = axes.barh(names, lengths, color=colour)
            texts = [f'{x:.3g}' if x else 'absent' for x in values[order]]
            axes.bar_label(bars, texts, padding=4)
            axes.margins(y=0.01)
        if source.files:
            title = f'{source.dataset}, {source.files:,} label files'
            figure.suptitle(drawable(title))
