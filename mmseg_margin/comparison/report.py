"""Writes the report of a comparison."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mmseg_margin.losses.presets import settings_of_config
from mmseg_margin.report import ABSENT, Table, write_pages
from mmseg_margin.stats import ClassStats, plot_stats
from mmseg_margin.stats.display import margin_columns

from .curves import draw_curves
from .examples import Sample, draw_examples
from .results import (
    BASELINE,
    RESULTS_FILE,
    Comparison,
    load_comparison,
    save_comparison,
)
from .tables import class_table, cost_table, difference_table, overall_table
from .verdict import missing_runs, verdict

REPORT_FOLDER = 'report'


class Margins(NamedTuple):
    """The classes with their margins, and whose margins they are."""

    table: Table
    objective: str | None
    tau: float
    upsilon: float
    file: Path | None


def write_report(out: Path, samples: Sequence[Sample] = ()) -> Path:
    """Write ``OUT/report/index.html`` and ``report.md`` with pictures.

    All results stand in ``results.json`` beside them, from which the tables
    and curves can be made again.

    Args:
        out: The folder of the comparison, which may be incomplete.
        samples: Name, image file and label file of the tested images; the
            labels are class indices, 255 where there is none. Predictions
            are found by the name. Without samples there is no mosaic.

    Returns:
        The path of the page.
    """
    comparison = load_comparison(out)
    setup = comparison.setup
    folder = out / REPORT_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    save_comparison(comparison, folder / RESULTS_FILE)
    return write_pages(
        folder,
        'comparison',
        subtitle=f'{setup.config}, {setup.iterations:,} iterations, '
        f'seeds: {", ".join(map(str, setup.all_seeds))}',
        summary=verdict(comparison),
        warnings=missing_runs(comparison),
        baseline=BASELINE,
        overall=overall_table(comparison),
        differences=difference_table(comparison),
        classes=class_table(comparison),
        curves=draw_curves(comparison, folder),
        examples=draw_examples(comparison, out, samples, folder),
        margins=describe_margins(comparison, folder),
        cost=cost_table(comparison),
        settings=_settings_table(comparison),
        commands='\n'.join(setup.commands),
        objectives='\n'.join(f'{k}: {v}' for k, v in setup.losses.items()),
    )


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


def _settings_table(comparison: Comparison) -> Table:
    setup = comparison.setup
    rows = {
        'config': setup.config,
        'iterations': f'{setup.iterations:,}',
        'seeds': ', '.join(map(str, setup.all_seeds)),
        'start from': setup.init or 'the initialisation of the config',
        **setup.versions,
    }
    return Table(
        ['setting', 'value'], [[*row] for row in rows.items()], numeric=False
    )
