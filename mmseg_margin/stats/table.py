"""The statistics as a text table."""

from collections.abc import Sequence

from prettytable import PrettyTable

from mmseg_margin.terminal import printable

from .class_stats import ClassStats


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
