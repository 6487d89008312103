"""Class shares and the margin-offsets that follow from them."""

from pathlib import Path
from typing import NamedTuple

from mmseg_margin.losses.presets import settings_of_config
from mmseg_margin.report import ABSENT, Table
from mmseg_margin.stats import ClassStats, plot_stats
from mmseg_margin.stats.display import margin_columns

from .results import Comparison


class Margins(NamedTuple):
    """The classes with their margins, and whose margins they are."""

    table: Table
    objective: str | None
    tau: float
    upsilon: float
    file: Path | None


def describe_margins(comparison: Comparison, folder: Path) -> Margins:
    """A table, and a picture where there are margins to draw."""
    setup = comparison.setup
    losses = comparison.margin_losses
    objective = next(iter(losses), None)
    loss = losses[objective] if objective else {}
    settings = settings_of_config(loss).offsets
    counts = setup.class_counts
    stats = ClassStats(setup.classes, counts, [0] * len(counts), counts)
    tau, upsilon = settings.tau_for(counts), settings.upsilon
    margins = [
        [ABSENT if text == '-' else text for text in pair]
        for pair in margin_columns(stats, tau, upsilon)
    ]
    rows = [
        [
            setup.classes[k],
            f'{counts[k]:,}',
            f'{100 * counts[k] / max(stats.total, 1):.4f}',
            *margins[k],
        ]
        for k in comparison.class_order
    ]
    picture = None
    if any(rho_0k != ABSENT for rho_0k, _ in margins):
        picture = folder / 'classes.png'
        plot_stats(stats, picture, tau, upsilon)
    header = ['class', 'pixels', 'share %', 'rho_0k', 'rho_k0']
    return Margins(Table(header, rows), objective, tau, upsilon, picture)
