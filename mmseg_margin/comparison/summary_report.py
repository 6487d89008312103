"""Writes the summary of several comparisons."""

import csv
import io
import json
import statistics
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.report.numbers import (
    ABSENT,
    difference_text,
    embolden_best,
    mean_cells,
    signed,
)
from mmseg_margin.report.pages import Table, write_pages
from mmseg_margin.report.pictures import picture
from mmseg_margin.terminal import drawable

from .results import BASELINE
from .summary import Summary
from .tables import METRICS

SCHEDULE_COLOURS = ('#0072B2', '#E69F00', '#009E73', '#CC79A7')
MEAN_STYLE: dict[str, Any] = {'marker': 'D', 'color': '#D55E00'}


def write_summary(summary: Summary, folder: Path) -> Path:
    """Write ``index.html``, ``report.md``, a picture, CSV and JSON.

    Returns:
        The path of the page.
    """
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write_text(folder / 'summary.csv', _runs_as_csv(summary))
    figures = {name: _figures(summary, name) for name in summary.names}
    atomic_write_text(folder / 'summary.json', json.dumps(figures, indent=1))
    return write_pages(
        folder,
        'summary',
        subtitle=', '.join(summary.comparisons),
        summary=summary_sentence(summary),
        warnings=missing_sentences(summary),
        baseline=BASELINE,
        differences=draw_summary(summary, folder / 'summary.png'),
        overall=metric_table(summary, 'mIoU'),
        tail=metric_table(summary, 'mIoU_tail'),
        cost=cost_table(summary),
        comparisons=comparison_table(summary),
    )


def summary_sentence(summary: Summary) -> str:
    """Who has the best average rank, and what that is worth."""
    texts = []
    for name in summary.names[:2]:
        text = f'{name} ({summary.rank(name):.2f}'
        difference = summary.difference(name)
        if difference and name != BASELINE:
            text += f', {signed(difference.mean)} to {BASELINE} in the mean '
            text += difference.interval_text
        texts.append(f'{text.strip()})')
    if not texts:
        return 'No run has finished yet, so there is nothing to sum up.'
    best = '; the second best is '.join(texts)
    return (
        f'Over {len(summary.comparisons)} comparisons the best average rank '
        f'is that of {best}.'
    )


def missing_sentences(summary: Summary) -> list[str]:
    """What every comparison lacks, if anything."""
    sentences = []
    for label, comparison in summary.comparisons.items():
        lacks = [
            f'{name} (seed {", ".join(map(str, seeds))})'
            for name, seeds in comparison.missing.items()
        ] + [name for name in summary.names if name not in comparison.names]
        if lacks:
            sentences.append(f'{label} lacks {", ".join(lacks)}.')
    return sentences


def metric_table(summary: Summary, metric: str) -> Table:
    """A metric of every objective, over all comparisons and in each."""
    names = summary.names
    columns = {'objective': names}
    if metric == 'mIoU':
        ranks = [summary.rank(name) for name in names]
        columns['average rank'] = embolden_best(
            [f'{rank:.2f}' for rank in ranks], [-rank for rank in ranks]
        )
    gains = [
        None if name == BASELINE else summary.difference(name, metric)
        for name in names
    ]
    columns[f'difference to {BASELINE}'] = [*map(difference_text, gains)]
    columns['worst difference'] = [
        signed(min(summary.differences(name, metric).values()))
        if gain
        else ABSENT
        for name, gain in zip(names, gains, strict=True)
    ]
    means = [summary.means(name, metric) for name in names]
    for schedule, labels in summary.schedules.items():
        # Only where all are there, or objectives could not be compared.
        columns[f'mean {schedule}'.strip()] = mean_cells(
            [
                [statistics.fmean(each[label] for label in labels)]
                if each.keys() >= {*labels}
                else []
                for each in means
            ]
        )
    for label, comparison in summary.comparisons.items():
        columns[label] = mean_cells(
            [comparison.metric(name, metric).values() for name in names]
        )
    return Table.of_columns(columns)


def cost_table(summary: Summary) -> Table:
    """Time of an iteration as a multiple of the baseline's."""
    rows = []
    for name in summary.names:
        costs = summary.cost(name)
        mean = statistics.geometric_mean(costs.values()) if costs else None
        each = [mean, *map(costs.get, summary.comparisons)]
        rows.append([name, *(f'{c:.2f}' if c else ABSENT for c in each)])
    return Table(['objective', 'mean', *summary.comparisons], rows)


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
    with picture(path, 8, 1.4 + 0.34 * len(shown)) as figure:
        axes = figure.subplots()
        for i, (schedule, labels) in enumerate(summary.schedules.items()):
            points = [
                (value, row)
                for row, name in enumerate(shown)
                for label, value in summary.differences(name).items()
                if label in labels
            ]
            values, places = np.reshape(points, (-1, 2)).T
            axes.scatter(
                values,
                places,
                s=22,
                color=SCHEDULE_COLOURS[i % len(SCHEDULE_COLOURS)],
                alpha=0.75,
                label=drawable(schedule) or 'one comparison',
            )
        for row, (name, (mean, low, high, _)) in enumerate(shown.items()):
            if low is not None and high is not None:
                ends = (low, high), (row, row)
                axes.plot(*ends, color='#444444', linewidth=1.2)
            axes.scatter(mean, row, **MEAN_STYLE)
            axes.annotate(
                f'{signed(mean)}   rank {summary.rank(name):.2f}',
                (1.01, row),
                xycoords=('axes fraction', 'data'),
                va='center',
                fontsize=9,
            )
        axes.scatter([], [], **MEAN_STYLE, label='mean')
        axes.set_yticks(range(len(shown)), map(drawable, shown))
        axes.invert_yaxis()
        axes.axvline(0, color='#000000', linewidth=0.8)
        axes.set_xlabel(f'mIoU, difference to {BASELINE} in points')
        figure.legend(loc='outside upper left', ncols=5, frameon=False)
    return path


def _figures(summary: Summary, name: str) -> dict[str, Any]:
    figures: dict[str, Any] = {'rank': summary.rank(name)}
    for metric in ('mIoU', 'mIoU_tail'):
        difference = summary.difference(name, metric)
        figures[metric] = summary.means(name, metric)
        figures[f'{metric}_difference'] = difference and difference._asdict()
    return figures | {'cost': summary.cost(name)}


def _runs_as_csv(summary: Summary) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator='\n')
    writer.writerow(['comparison', 'objective', 'seed', *METRICS, 'seconds'])
    for label, comparison in summary.comparisons.items():
        for (name, seed), run in comparison.results.items():
            metrics = [round(run.metrics.get(m, nan), 4) for m in METRICS]
            seconds = f'{run.seconds_per_iteration:.4g}'
            writer.writerow([label, name, seed, *metrics, seconds])
    return file.getvalue()
