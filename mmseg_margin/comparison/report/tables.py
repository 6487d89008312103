"""The paper's Tables 1 and 2, the paired differences and the cost."""

import statistics
from collections.abc import Callable

from .comparison import BASELINE, Comparison, Seeds
from .document import Table
from .statistics import paired_difference
from .text import (
    ABSENT,
    Bold,
    embolden_best,
    interval_text,
    mean_text,
    signed,
)

METRICS = {
    'aAcc': 'pixel accuracy',
    'mIoU': 'mIoU',
    'mIoU_head': 'head mIoU',
    'mIoU_middle': 'middle mIoU',
    'mIoU_tail': 'tail mIoU',
}


def overall_table(comparison: Comparison) -> Table:
    """Table 1: every metric of every objective."""
    objectives = comparison.objectives
    columns = [
        _mean_cells([comparison.metric(name, metric) for name in objectives])
        for metric in METRICS
    ]
    seeds = [str(len(comparison.runs(name))) for name in objectives]
    return Table(
        'Mean and standard deviation over the seeds, in percent; the best '
        'mean is bold. Head, middle and tail are thirds of the classes by '
        'their pixels in the training set.',
        ['objective', *METRICS.values(), 'seeds'],
        [list(row) for row in zip(objectives, *columns, seeds, strict=True)],
    )


def class_table(comparison: Comparison) -> Table:
    """Table 2: IoU of every class, most frequent class first."""
    study = comparison.study
    total = max(sum(study.class_counts), 1)
    rows = []
    for k in comparison.class_order:
        iou = [comparison.class_iou(name, k) for name in study.losses]
        share = f'{100 * study.class_counts[k] / total:.3f}'
        rows.append([study.classes[k], share, *_mean_cells(iou)])
    return Table(
        'IoU in percent, mean and standard deviation over the seeds; the '
        'best mean is bold. The share is that of the training pixels.',
        ['class', 'share %', *study.losses],
        rows,
    )


def difference_table(comparison: Comparison) -> Table | None:
    """Every objective against the baseline, seed by seed."""
    others = [name for name in comparison.objectives if name != BASELINE]
    if not comparison.runs(BASELINE) or not others:
        return None
    return Table(
        f'Mean difference to {BASELINE} in points, each run against the run '
        f'of {BASELINE} with the same seed, and its 95 % interval '
        "(Student's t); bold where it excludes 0. A single seed gives no "
        'interval. The intervals are not corrected for being many.',
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
        'Median over the seeds of the seconds of an iteration, and the '
        'largest peak memory of the process.',
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
            for name in comparison.objectives
        ],
    )


def _mean_cells(columns: list[Seeds]) -> list[str]:
    return embolden_best(
        [mean_text(values.values()) for values in columns],
        [
            statistics.fmean(values.values()) if values else None
            for values in columns
        ],
    )


def _difference_cell(values: Seeds, baseline: Seeds) -> str:
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
        for name in comparison.objectives
    }
    return {
        name: reduce(values) for name, values in measured.items() if values
    }


def _ratio(values: dict[str, float], name: str) -> str:
    if name not in values or BASELINE not in values:
        return ABSENT
    return f'{values[name] / values[BASELINE]:.2f}'
