"""The paper's Tables 1 and 2, the paired differences and the cost."""

import statistics
from collections.abc import Callable

from mmseg_margin.report import (
    ABSENT,
    Bold,
    Table,
    embolden_best,
    interval_text,
    mean_text,
    paired_difference,
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
    setup = comparison.setup
    total = max(sum(setup.class_counts), 1)
    rows = []
    for k in comparison.class_order:
        iou = [comparison.class_iou(name, k) for name in setup.losses]
        share = f'{100 * setup.class_counts[k] / total:.3f}'
        rows.append([setup.classes[k], share, *_mean_cells(iou)])
    return Table(['class', 'share %', *setup.losses], rows)


def difference_table(comparison: Comparison) -> Table | None:
    """Every objective against the baseline, seed by seed."""
    others = [name for name in comparison.names if name != BASELINE]
    if not comparison.runs(BASELINE) or not others:
        return None
    return Table(
        ['objective', *METRICS.values()],
        [
            [
                name,
                *(
                    _difference_cell(
                        comparison.metric(name, metric),
                        comparison.metric(BASELINE, metric),
                    )
                    for metric in METRICS
                ),
            ]
            for name in others
        ],
    )


def cost_table(comparison: Comparison) -> Table:
    """Time and memory, and their ratio to the baseline."""
    seconds = _over_runs(
        comparison, lambda run: run.seconds_per_iteration, statistics.median
    )
    memory = _over_runs(comparison, lambda run: run.peak_memory_mib, max)
    return Table(
        [
            'objective',
            's / iteration',
            f'ratio to {BASELINE}',
            'peak MiB',
            f'ratio to {BASELINE}',
        ],
        [
            [
                name,
                f'{seconds[name]:.4g}' if name in seconds else ABSENT,
                _ratio(seconds, name),
                f'{memory[name]:,.0f}' if name in memory else ABSENT,
                _ratio(memory, name),
            ]
            for name in comparison.names
        ],
    )


def _mean_cells(columns: list[BySeed]) -> list[str]:
    return embolden_best(
        [mean_text(values.values()) for values in columns],
        [
            statistics.fmean(values.values()) if values else None
            for values in columns
        ],
    )


def _difference_cell(values: BySeed, baseline: BySeed) -> str:
    difference = paired_difference(values, baseline)
    if difference is None:
        return ABSENT
    text = signed(difference.mean)
    if difference.low is not None:
        text += f'\n{interval_text(difference)}'
    return Bold(text) if difference.sign else text


def _over_runs(
    comparison: Comparison, measure: Callable, reduce: Callable
) -> dict[str, float]:
    """One figure for each objective that was measured; 0 is not measured."""
    measured = {
        name: [measure(run) for run in comparison.runs(name) if measure(run)]
        for name in comparison.names
    }
    return {
        name: reduce(values) for name, values in measured.items() if values
    }


def _ratio(values: dict[str, float], name: str) -> str:
    if name not in values or BASELINE not in values:
        return ABSENT
    return f'{values[name] / values[BASELINE]:.2f}'
