"""The paper's Tables 1 and 2, paired differences, margins and cost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mmseg_margin.losses.presets import settings_of_config
from mmseg_margin.report.numbers import ABSENT, difference_text, mean_cells
from mmseg_margin.report.pages import Bold, Table
from mmseg_margin.stats import ClassStats, plot_stats
from mmseg_margin.stats.display import offset_columns

from .results import BASELINE, Comparison, ratio_to_baseline

METRICS = {
    'aAcc': 'pixel accuracy',
    'mIoU': 'mIoU',
    'mIoU_head': 'head mIoU',
    'mIoU_middle': 'middle mIoU',
    'mIoU_tail': 'tail mIoU',
}


def overall_table(comparison: Comparison) -> Table:
    """Table 1: every metric of every objective."""
    names = comparison.names
    columns = {
        title: mean_cells([comparison.metric(n, m).values() for n in names])
        for m, title in METRICS.items()
    }
    seeds = [str(len(comparison.runs(name))) for name in names]
    return Table.of_columns({'objective': names, **columns, 'seeds': seeds})


def class_table(comparison: Comparison) -> Table:
    """Table 2: IoU of every class, most frequent class first."""
    setup, names = comparison.setup, comparison.names
    total = max(sum(setup.class_counts), 1)
    rows = [
        [
            setup.classes[k],
            f'{100 * setup.class_counts[k] / total:.3f}',
            *mean_cells([comparison.class_iou(n, k).values() for n in names]),
        ]
        for k in comparison.class_order
    ]
    return Table(['class', 'share %', *names], rows)


def difference_table(comparison: Comparison) -> Table | None:
    """Every objective against the baseline, seed by seed."""
    others = [name for name in comparison.names if name != BASELINE]
    if not comparison.runs(BASELINE) or not others:
        return None
    columns = {
        title: [_difference_cell(comparison, name, m) for name in others]
        for m, title in METRICS.items()
    }
    return Table.of_columns({'objective': others, **columns})


def describe_margins(comparison: Comparison, folder: Path) -> dict[str, Any]:
    """A table, a picture if there is one, and whose margins they are."""
    setup = comparison.setup
    counts = setup.class_counts
    objective, loss = next(iter(comparison.margin_losses.items()), (None, {}))
    offsets = settings_of_config(loss).offsets
    tau, upsilon = offsets.tau_for(counts), offsets.upsilon
    stats = ClassStats(setup.classes, counts, [0] * len(counts), counts)
    margins = [
        [ABSENT if text == '-' else text for text in pair]
        for pair in offset_columns(stats, offsets)
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
        plot_stats(stats, picture, offsets)
    header = ['class', 'pixels', 'share %', 'rho_0k', 'rho_k0']
    return {
        'table': Table(header, rows),
        'file': picture,
        'objective': objective,
        'tau': tau,
        'upsilon': upsilon,
    }


def cost_table(comparison: Comparison) -> Table:
    """Time and memory, and their ratio to the baseline."""
    ratio = f'ratio to {BASELINE}'
    rows = [
        [
            name,
            *_cost_cells(comparison.seconds, name, '.4g'),
            *_cost_cells(comparison.memory, name, ',.0f'),
        ]
        for name in comparison.names
    ]
    header = ['objective', 's / iteration', ratio, 'peak MiB', ratio]
    return Table(header, rows)


def _difference_cell(comparison: Comparison, name: str, metric: str) -> str:
    difference = comparison.difference(name, metric)
    text = difference_text(difference)
    return Bold(text) if difference and difference.sign else text


def _cost_cells(
    cost: Callable[[str], float | None], name: str, digits: str
) -> list[str]:
    """A figure, and its ratio to the baseline's."""
    own, ratio = cost(name), ratio_to_baseline(cost, name)
    return [
        f'{own:{digits}}' if own else ABSENT,
        f'{ratio:.2f}' if ratio else ABSENT,
    ]
