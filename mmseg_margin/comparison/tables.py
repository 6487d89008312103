"""The paper's Tables 1 and 2, the paired differences and the cost."""

import statistics
from collections.abc import Callable

from mmseg_margin.report import (
    ABSENT,
    Bold,
    PairedDifference,
    Table,
    embolden_best,
    interval_text,
    mean_text,
    signed,
)

from .results import BASELINE, BySeed, Comparison

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
    columns = [
        _mean_cells([comparison.metric(name, metric) for name in names])
        for metric in METRICS
    ]
    seeds = [str(len(comparison.runs(name))) for name in names]
    return Table(
        ['objective', *METRICS.values(), 'seeds'],
        [list(row) for row in zip(names, *columns, seeds, strict=True)],
    )


def class_table(comparison: Comparison) -> Table:
    """Table 2: IoU of every class, most frequent class first."""
    setup, names = comparison.setup, comparison.names
    total = max(sum(setup.class_counts), 1)
    rows = [
        [
            setup.classes[k],
            f'{100 * setup.class_counts[k] / total:.3f}',
            *_mean_cells([comparison.class_iou(name, k) for name in names]),
        ]
        for k in comparison.class_order
    ]
    return Table(['class', 'share %', *names], rows)


def difference_table(comparison: Comparison) -> Table | None:
    """Every objective against the baseline, seed by seed."""
    others = [name for name in comparison.names if name != BASELINE]
    if not comparison.runs(BASELINE) or not others:
        return None
    rows = [
        [name]
        + [_difference_cell(comparison.difference(name, m)) for m in METRICS]
        for name in others
    ]
    return Table(['objective', *METRICS.values()], rows)


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


def _mean_cells(columns: list[BySeed]) -> list[str]:
    return embolden_best(
        [mean_text(values.values()) for values in columns],
        [
            statistics.fmean(values.values()) if values else None
            for values in columns
        ],
    )


def _difference_cell(difference: PairedDifference | None) -> str:
    if difference is None:
        return ABSENT
    text = signed(difference.mean)
    if difference.low is not None:
        text += f'\n{interval_text(difference)}'
    return Bold(text) if difference.sign else text


def _cost_cells(
    measured: Callable[[str], float | None], name: str, digits: str
) -> list[str]:
    """A figure, and its ratio to the baseline's."""
    cost, baseline = measured(name), measured(BASELINE)
    return [
        f'{cost:{digits}}' if cost else ABSENT,
        f'{cost / baseline:.2f}' if cost and baseline else ABSENT,
    ]
