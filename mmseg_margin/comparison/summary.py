"""Writes the summary of several comparisons: more columns, one picture."""

import csv
import io
import json
from itertools import cycle
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import gmean

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.report import pictures
from mmseg_margin.report.numbers import (
    ABSENT,
    difference_cells,
    embolden_best,
    mean_cells,
    mean_difference,
    number_cells,
    signed,
)
from mmseg_margin.report.pages import Page, Picture, Table

from .records import FITTED, Run
from .results import BASELINE, Results, load_results, mean_over_seeds
from .tables import metrics_of

COLOURS = (pictures.BLUE, pictures.ORANGE, pictures.GREEN, pictures.PINK)
# The mean over the comparisons, without and with fitted offsets.
MEAN: dict[str, Any] = {'marker': 'D', 'color': pictures.RED}
FITTED_MEAN = MEAN | {'facecolors': 'none'}
CAPTIONS = {
    'mIoU': 'mIoU in percent, mean and standard deviation over the seeds; the '
    'best mean is bold. The rank is that among the objectives of a '
    'comparison, averaged over the comparisons. The difference to '
    f'{BASELINE} is taken seed by seed and averaged over the comparisons, '
    'with its 95 % interval over the comparisons, bold where it excludes 0; '
    'the worst is that of a single comparison.',
    'mIoU_tail': 'The same for the third of the classes with the fewest '
    'pixels in the training set.',
    f'{FITTED}mIoU': 'The same with offsets fitted to each trained network on '
    'training images. The gain is that over the network without them.',
}


def write_summary(places: list[str], folder: Path) -> Path:
    """Write ``index.html``, ``report.md``, a picture, CSV and JSON.

    Returns:
        The path of the page.
    """
    results = load_results(places)
    # The best average rank first, and only what has a result.
    ranks = dict(zip(results.names, results.ranks().tolist(), strict=True))
    names = sorted((rank, name) for name, rank in ranks.items() if rank > 0)
    results = Results(results.compared, [name for _, name in names])
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write_text(folder / 'summary.csv', as_csv(results))
    text = json.dumps(as_dict(results), indent=1)
    atomic_write_text(folder / 'summary.json', text)
    fitted = metric_table(results, f'{FITTED}mIoU')
    return Page(
        'Summary of comparisons',
        ', '.join(results.compared),
        summary_sentence(results),
        {
            'mIoU': [
                draw_summary(results, folder / 'summary.png'),
                metric_table(results, 'mIoU'),
            ],
            **({'Fitted offsets': [fitted]} if results.is_fitted else {}),
            'Tail mIoU': [metric_table(results, 'mIoU_tail')],
            'Cost': [cost_table(results)],
            'Comparisons': [comparison_table(results)],
        },
        missing_sentences(results),
    ).write(folder)


def schedules(results: Results) -> dict[str, list[int]]:
    """The places of the labels of each schedule, if the labels name any."""
    groups: dict[str, list[int]] = {}
    for place, label in enumerate(results.compared):
        groups.setdefault(label.rpartition('/')[0], []).append(place)
    return groups


def summary_sentence(results: Results) -> str:
    """The objectives with the best average ranks, and their differences."""
    texts = []
    means = mean_over_seeds(results.differences())
    for i, name in enumerate(results.names[:2]):
        text = f'{name} ({results.ranks()[i]:.2f}'
        difference = mean_difference(means[:, i])
        if difference and name != BASELINE:
            text += f', {signed(difference.mean)} to {BASELINE} in the mean '
            text += difference.interval_text
        texts.append(f'{text.strip()})')
    if not texts:
        return 'No run has finished yet, so there is nothing to sum up.'
    best = '; the second best is '.join(texts)
    return (
        f'Over {len(results.compared)} comparisons the best average rank is '
        f'that of {best}.'
    )


def missing_sentences(results: Results) -> list[str]:
    """What every comparison lacks, if anything."""
    sentences = []
    for label, runs in results.compared.items():
        lacks = [
            f'{name} (seed {", ".join(map(str, seeds))})'
            for name, seeds in results.missing(label).items()
        ]
        asked = {run.name for run in runs}
        lacks += [name for name in results.names if name not in asked]
        if lacks:
            sentences.append(f'{label} lacks {", ".join(lacks)}.')
    return sentences


def metric_table(results: Results, figure: str) -> Table:
    """A figure of every objective, over all comparisons and in each."""
    columns = {'objective': results.names}
    if figure == 'mIoU':
        ranks = results.ranks()
        columns['average rank'] = embolden_best(number_cells(ranks), -ranks)
    differences = results.differences(figure)
    differences[:, [name == BASELINE for name in results.names]] = nan
    columns |= _differences(
        'difference to ce', 'worst difference', differences
    )
    if figure.startswith(FITTED):
        gains = results.gains()
        columns |= _differences('gain by fitting', 'smallest gain', gains)
    values = results.values(figure)
    means = mean_over_seeds(values)
    for schedule, places in schedules(results).items():
        # NaN if one is missing: other means could not be compared.
        cells = mean_cells(means[places].mean(axis=0)[:, None])
        columns[f'mean {schedule}'.strip()] = cells
    columns |= zip(results.compared, map(mean_cells, values), strict=True)
    return Table.of_columns(columns, CAPTIONS[figure])


def _differences(
    title: str, worst: str, differences: np.ndarray
) -> dict[str, list[str]]:
    means = mean_over_seeds(differences).T
    lowest = [min(row[np.isfinite(row)], default=None) for row in means]
    texts = [ABSENT if low is None else signed(low) for low in lowest]
    return {title: difference_cells(means), worst: texts}


def cost_table(results: Results) -> Table:
    """Time of an iteration as a multiple of the baseline's."""
    ratios = results.costs('seconds', np.ma.median)[1]
    mean = gmean(ratios, axis=0, nan_policy='omit')
    columns = {'objective': results.names, 'mean': number_cells(mean)}
    columns |= zip(results.compared, map(number_cells, ratios), strict=True)
    return Table.of_columns(
        columns,
        f'Time of a training iteration as a multiple of that of {BASELINE} '
        '(median within a run and over the seeds), and its geometric mean.',
    )


def comparison_table(results: Results) -> Table:
    """What was compared."""
    rows = [
        [
            label,
            runs[0].config,
            f'{runs[0].iterations:,}',
            str(len(runs[0].classes)),
            ', '.join(map(str, sorted({run.seed for run in runs}))),
            str(sum(run.is_done() for run in runs)),
        ]
        for label, runs in results.compared.items()
    ]
    return Table(
        ['comparison', 'config', 'iterations', 'classes', 'seeds', 'runs'],
        rows,
        'What was compared. All runs stand in summary.csv, the figures of the '
        'tables in summary.json.',
        numeric=False,
    )


def draw_summary(results: Results, path: Path) -> Picture | None:
    """Differences to the baseline: each comparison's, their mean, interval."""
    values = mean_over_seeds(results.differences())
    found = {i: mean_difference(column) for i, column in enumerate(values.T)}
    shown = [(i, each) for i, each in found.items() if each]
    if not shown:
        return None
    gains = mean_over_seeds(results.gains())
    with pictures.picture(path, 8, 1.4 + 0.34 * len(shown)) as figure:
        axes = figure.subplots()
        for (schedule, places), colour in zip(
            schedules(results).items(), cycle(COLOURS), strict=False
        ):
            own = values[places][:, [i for i, _ in shown]]
            axes.scatter(
                own,
                np.broadcast_to(range(len(shown)), own.shape),
                s=22,
                color=colour,
                alpha=0.75,
                label=pictures.short(schedule) or 'one comparison',
            )
        for row, (i, (mean, low, high, _)) in enumerate(shown):
            if low is not None and high is not None:
                axes.plot((low, high), (row, row), color='#444444', lw=1.2)
            axes.scatter(mean, row, **MEAN)
            if gain := mean_difference(gains[:, i]):
                axes.scatter(mean + gain.mean, row, **FITTED_MEAN)
            axes.annotate(
                f'{signed(mean)}   rank {results.ranks()[i]:.2f}',
                (1.01, row),
                xycoords=('axes fraction', 'data'),
                va='center',
                fontsize=9,
            )
        axes.scatter([], [], **MEAN, label='mean')
        if results.is_fitted:
            axes.scatter([], [], **FITTED_MEAN, label='with fitted offsets')
        names = [pictures.short(results.names[i]) for i, _ in shown]
        axes.set_yticks(range(len(shown)), names)
        axes.invert_yaxis()
        axes.axvline(0, color='#000000', linewidth=0.8)
        axes.set_xlabel(f'mIoU, difference to {BASELINE} in points')
        figure.legend(loc='outside upper left', ncols=5, frameon=False)
    return Picture(
        path,
        f'Difference of the mean mIoU to {BASELINE}: a dot for each '
        "comparison, the mean over them and its 95 % interval (Student's t "
        'over the comparisons).'
        + f' Fitted offsets are compared with {BASELINE} without them.'
        * results.is_fitted,
    )


def as_dict(results: Results) -> dict[str, Any]:
    """The figures of the tables, by objective."""

    def by_label(values: np.ndarray) -> dict[str, float]:
        found = zip(results.compared, values.tolist(), strict=True)
        return {label: value for label, value in found if np.isfinite(value)}

    figures: dict[str, Any] = {}
    for i, name in enumerate(results.names):
        figures[name] = own = {'rank': results.ranks()[i]}
        for key in ('mIoU', 'mIoU_tail'):
            differences = mean_over_seeds(results.differences(key))[:, i]
            difference = mean_difference(differences)
            own[key] = by_label(mean_over_seeds(results.values(key))[:, i])
            own[f'{key}_difference'] = difference and difference._asdict()
        if results.is_fitted:
            gains = mean_over_seeds(results.gains())[:, i]
            own['gain_by_fitting'] = by_label(gains)
        ratios = results.costs('seconds', np.ma.median)[1]
        own['cost'] = by_label(ratios[:, i])
    return figures


def as_csv(results: Results) -> str:
    """A line for every finished run."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator='\n')
    keys = [*metrics_of(results), 'seconds']
    writer.writerow(['comparison', 'objective', 'seed', *keys])
    for label, runs in results.compared.items():
        for run in filter(Run.is_done, runs):
            # A spreadsheet would take these for formulas.
            names = [
                f"'{name}" if name.startswith(tuple('=+-@\t\r')) else name
                for name in (label, run.name)
            ]
            values = [round(run.figures.get(key, nan), 4) for key in keys]
            writer.writerow([*names, run.seed, *values])
    return file.getvalue()
