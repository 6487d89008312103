"""The tables of a summary, and its picture."""

import statistics
from pathlib import Path

from mmseg_margin.report import (
    ABSENT,
    Table,
    embolden_best,
    interval_text,
    mean_text,
    new_figure,
    save_figure,
    signed,
    tidy,
)
from mmseg_margin.terminal import drawable

from .results import BASELINE
from .summary import ByLabel, Summary

COLOURS = ('#0072B2', '#E69F00', '#009E73', '#CC79A7')


def metric_table(summary: Summary, metric: str) -> Table:
    """A metric of every objective, over all comparisons and in each."""
    names = summary.names
    columns = {}
    if metric == 'mIoU':
        ranks = [summary.rank(name) for name in names]
        columns['average rank'] = embolden_best(
            [f'{rank:.2f}' for rank in ranks], [-rank for rank in ranks]
        )
    columns[f'difference to {BASELINE}'] = [
        _difference_text(summary, name, metric) for name in names
    ]
    columns['worst difference'] = [
        ABSENT if name == BASELINE or not each else signed(min(each.values()))
        for name in names
        for each in [summary.differences(name, metric)]
    ]
    for schedule, labels in summary.schedules.items():
        means = [_mean_of(summary.means(n, metric), labels) for n in names]
        columns[f'mean {schedule}'.strip()] = embolden_best(
            [ABSENT if m is None else f'{m:.2f}' for m in means], means
        )
    for label, comparison in summary.comparisons.items():
        columns[label] = embolden_best(
            [mean_text(comparison.metric(n, metric).values()) for n in names],
            [summary.means(n, metric).get(label) for n in names],
        )
    return _table(names, columns)


def cost_table(summary: Summary) -> Table:
    """Time of an iteration as a multiple of the baseline's."""
    costs = {name: summary.cost(name) for name in summary.names}
    columns = {
        'mean': [
            f'{statistics.geometric_mean(each.values()):.2f}'
            if each
            else ABSENT
            for each in costs.values()
        ]
    }
    for label in summary.comparisons:
        columns[label] = [
            f'{each[label]:.2f}' if label in each else ABSENT
            for each in costs.values()
        ]
    return _table(summary.names, columns)


def comparison_table(summary: Summary) -> Table:
    """What was compared."""
    header = ['comparison', 'config', 'iterations', 'classes', 'seeds', 'runs']
    rows = [
        [
            label,
            setup.config,
            f'{setup.iterations:,}',
            str(len(setup.classes)),
            ', '.join(map(str, setup.all_seeds)),
            str(len(comparison.results)),
        ]
        for label, comparison in summary.comparisons.items()
        for setup in [comparison.setup]
    ]
    return Table(header, rows, numeric=False)


def draw_summary(summary: Summary, path: Path) -> Path | None:
    """Differences to the baseline: each comparison's, their mean, interval."""
    found = {name: summary.difference(name) for name in summary.names}
    shown = {name: each for name, each in found.items() if each}
    if not shown:
        return None
    figure = new_figure(8, 1.4 + 0.34 * len(shown))
    axes = figure.subplots()
    for i, (schedule, labels) in enumerate(summary.schedules.items()):
        points = [
            (value, row)
            for row, name in enumerate(shown)
            for label, value in summary.differences(name).items()
            if label in labels
        ]
        axes.scatter(
            [value for value, _ in points],
            [row for _, row in points],
            s=22,
            color=COLOURS[i % len(COLOURS)],
            alpha=0.75,
            label=drawable(schedule) or 'one comparison',
        )
    for row, (name, (mean, low, high, _)) in enumerate(shown.items()):
        if low is not None and high is not None:
            axes.plot((low, high), (row, row), color='#444444', linewidth=1.2)
        axes.scatter(mean, row, marker='D', color='#D55E00')
        axes.annotate(
            f'{signed(mean)}   rank {summary.rank(name):.2f}',
            (1.01, row),
            xycoords=('axes fraction', 'data'),
            va='center',
            fontsize=9,
        )
    axes.scatter([], [], marker='D', color='#D55E00', label='mean')
    axes.set_yticks(range(len(shown)), map(drawable, shown))
    axes.invert_yaxis()
    axes.axvline(0, color='#000000', linewidth=0.8)
    axes.set_xlabel(f'mIoU, difference to {BASELINE} in points')
    tidy(axes)
    figure.legend(loc='outside upper left', ncols=5, frameon=False)
    return save_figure(figure, path)


def _difference_text(summary: Summary, name: str, metric: str) -> str:
    difference = summary.difference(name, metric)
    if difference is None or name == BASELINE:
        return ABSENT
    text = signed(difference.mean)
    if difference.low is None:
        return text
    return f'{text}\n{interval_text(difference)}'


def _mean_of(means: ByLabel, labels: list[str]) -> float | None:
    """None unless all are there, or objectives could not be compared."""
    if not all(label in means for label in labels):
        return None
    return statistics.fmean(means[label] for label in labels)


def _table(names: list[str], columns: dict[str, list[str]]) -> Table:
    rows = [list(row) for row in zip(names, *columns.values(), strict=True)]
    return Table(['objective', *columns], rows)
