"""The summary of several comparisons: more columns, and one picture."""

import csv
import io
import json
from itertools import cycle
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import gmean

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.errors import SettingError
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

from .figures import draw_offsets
from .report import metrics_of
from .runs import (
    BASELINE,
    FITTED,
    Results,
    Run,
    load_results,
    mean_over_seeds,
)

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
    f'{FITTED}mIoU': 'mIoU with offsets fitted to each trained network on '
    'training images. The gain is that over the network without them.',
    'cost': f'Time of a training iteration as a multiple of that of {BASELINE}'
    ' (median within a run and over the seeds), and its geometric mean.',
    'comparisons': 'What was compared. All runs stand in summary.csv, the '
    'figures of the tables in summary.json.',
    'picture': f'Difference of the mean mIoU to {BASELINE}: a dot for each '
    "comparison, the mean over them and its 95 % interval (Student's t over "
    'the comparisons).',
    'fitted': f' Fitted offsets are compared with {BASELINE} without them.',
}


def write_summary(places: list[str], folder: Path) -> Path:
    """Write ``index.html``, ``report.md``, pictures, CSV and JSON.

    Returns:
        The path of the page.
    """
    results = load_results(by_label(places))
    # The best average rank first, and only what has a result.
    ranks = zip(results.ranks().tolist(), results.names, strict=True)
    names = [name for rank, name in sorted(ranks) if rank > 0]
    results = Results(results.compared, names)
    folder.mkdir(parents=True, exist_ok=True)
    figures = json.dumps(as_dict(results), indent=1)
    atomic_write_text(folder / 'summary.json', figures)
    atomic_write_text(folder / 'summary.csv', as_csv(results))
    offsets = draw_offsets(baseline_panels(results), folder / 'offsets.png')
    fitted = [metric_table(results, f'{FITTED}mIoU'), offsets]
    return Page(
        'Summary of comparisons',
        ', '.join(results.compared),
        summary_sentence(results),
        {
            'mIoU': [
                draw_summary(results, folder / 'summary.png'),
                metric_table(results, 'mIoU'),
            ],
            'Tail mIoU': [metric_table(results, 'mIoU_tail')],
            'Fitted offsets': fitted if results.is_fitted else [],
            'Cost': [cost_table(results)],
            'Comparisons': [comparison_table(results)],
        },
        missing_sentences(results),
    ).write(folder)


def by_label(places: list[str]) -> dict[str, Path]:
    """Comparisons that are given as ``PLACE`` or ``LABEL=PLACE``."""
    labelled: dict[str, Path] = {}
    given: set[Path] = set()
    for text in places:
        label, _, place = text.rpartition('=')
        path = Path(place).resolve()
        folder = path.parent if path.is_file() else path
        if folder.name == 'report':
            path = folder = folder.parent
        if path in given:
            raise SettingError(f'{place} is given twice: leave one out.')
        given.add(path)
        label = label or folder.name
        if label in labelled:
            raise SettingError(
                f'Two comparisons are called {label!r}: write LABEL={place} '
                'for one of them.'
            )
        labelled[label] = Path(place)
    return labelled


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
    return (
        f'Over {len(results.compared)} comparisons the best average rank is '
        f'that of {"; the second best is ".join(texts)}.'
    )


def missing_sentences(results: Results) -> list[str]:
    """What every comparison lacks, if anything."""
    lacks = {
        label: [
            f'{name} (seed {seeds})'
            for name, seeds in results.missing(label).items()
        ]
        + [n for n in results.names if n not in {run.name for run in runs}]
        for label, runs in results.compared.items()
    }
    return [f'{k} lacks {", ".join(v)}.' for k, v in lacks.items() if v]


def metric_table(results: Results, figure: str) -> Table:
    """A figure of every objective, over all comparisons and in each."""
    columns = {'objective': results.names}
    if figure == 'mIoU':
        ranks = results.ranks()
        columns['average rank'] = embolden_best(number_cells(ranks), -ranks)
    differences = results.differences(figure)
    differences[:, [name == BASELINE for name in results.names]] = nan
    found = {(f'difference to {BASELINE}', 'worst difference'): differences}
    if figure.startswith(FITTED):
        found['gain by fitting', 'smallest gain'] = results.gains()
    for (mean, worst), values in found.items():
        rows = mean_over_seeds(values).T
        columns[mean] = difference_cells(rows)
        lowest = [min(row[np.isfinite(row)], default=None) for row in rows]
        columns[worst] = [ABSENT if v is None else signed(v) for v in lowest]
    values = results.values(figure)
    for schedule, places in schedules(results).items():
        # NaN if one is missing: other means could not be compared.
        means = mean_over_seeds(values[places]).mean(axis=0)
        columns[f'mean {schedule}'.strip()] = mean_cells(means[:, None])
    columns |= zip(results.compared, map(mean_cells, values), strict=True)
    return Table.of_columns(columns, CAPTIONS[figure])


def cost_table(results: Results) -> Table:
    """Time of an iteration as a multiple of the baseline's."""
    ratios = results.costs('seconds')[1]
    mean = gmean(ratios, axis=0, nan_policy='omit')
    columns = {'objective': results.names, 'mean': number_cells(mean)}
    columns |= zip(results.compared, map(number_cells, ratios), strict=True)
    return Table.of_columns(columns, CAPTIONS['cost'])


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
    header = ['comparison', 'config', 'iterations', 'classes', 'seeds', 'runs']
    return Table(header, rows, CAPTIONS['comparisons'], numeric=False)


def baseline_panels(
    results: Results,
) -> list[tuple[str, dict[str, list[Run]]]]:
    """The baseline's fitted runs, a panel for each data set."""
    panels: dict[tuple[str, ...], dict[str, list[Run]]] = {}
    for label, runs in results.compared.items():
        schedule, _, data = label.rpartition('/')
        name = f'{BASELINE}, {schedule}' if schedule else BASELINE
        fitted = [run for run in runs if run.name == BASELINE and run.fitted]
        if fitted:
            # Two data sets may have the same name.
            groups = panels.setdefault((data, *fitted[0].classes), {})
            groups[name] = fitted
    return [(data, groups) for (data, *_), groups in panels.items()]


def draw_summary(results: Results, path: Path) -> Picture | None:
    """Differences to the baseline: each comparison's, their mean, interval."""
    values = mean_over_seeds(results.differences())
    gains = mean_over_seeds(results.gains())
    means = [mean_difference(column) for column in values.T]
    if not any(means):
        return None
    with pictures.picture(path, 8, 1.4 + 0.34 * len(means)) as figure:
        axes = figure.subplots()
        rows = np.broadcast_to(range(len(means)), values.shape)
        for (schedule, places), colour in zip(
            schedules(results).items(), cycle(COLOURS), strict=False
        ):
            label = pictures.short(schedule) or 'one comparison'
            points = axes.scatter(values[places], rows[places], s=22)
            points.set(color=colour, alpha=0.75, label=label)
        for row, difference in enumerate(means):
            if difference is None:
                continue
            mean, low, high, _ = difference
            if low is not None and high is not None:
                axes.plot((low, high), (row, row), color='#444444', lw=1.2)
            axes.scatter(mean, row, **MEAN)
            if gain := mean_difference(gains[:, row]):
                axes.scatter(mean + gain.mean, row, **FITTED_MEAN)
            axes.annotate(
                f'{signed(mean)}   rank {results.ranks()[row]:.2f}',
                (1.01, row),
                xycoords=('axes fraction', 'data'),
                va='center',
                fontsize=9,
            )
        axes.scatter([], [], **MEAN, label='mean')
        if results.is_fitted:
            axes.scatter([], [], **FITTED_MEAN, label='with fitted offsets')
        axes.set_yticks(rows[0], map(pictures.short, results.names))
        axes.invert_yaxis()
        axes.axvline(0, color='#000000', linewidth=0.8)
        axes.set_xlabel(f'mIoU, difference to {BASELINE} in points')
        figure.legend(loc='outside upper left', ncols=5, frameon=False)
    fitted = CAPTIONS['fitted'] if results.is_fitted else ''
    return Picture(path, CAPTIONS['picture'] + fitted)


def as_dict(results: Results) -> dict[str, Any]:
    """The figures of the tables, by objective."""

    def by_comparison(values: NDArray) -> dict[str, float]:
        means = mean_over_seeds(values).tolist()
        found = zip(results.compared, means, strict=True)
        return {label: mean for label, mean in found if np.isfinite(mean)}

    ranks, figures = results.ranks().tolist(), {}
    ratios = results.costs('seconds')[1]
    for i, name in enumerate(results.names):
        figures[name] = own = {'rank': ranks[i]}
        for key in ('mIoU', 'mIoU_tail'):
            differences = mean_over_seeds(results.differences(key)[:, i])
            difference = mean_difference(differences)
            own[key] = by_comparison(results.values(key)[:, i])
            own[f'{key}_difference'] = difference and difference._asdict()
        if results.is_fitted:
            own['gain_by_fitting'] = by_comparison(results.gains()[:, i])
        own['cost'] = by_comparison(ratios[:, i, None])
    return figures


def as_csv(results: Results) -> str:
    """A line for every finished run."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator='\n')
    keys = [*metrics_of(results), 'seconds']
    writer.writerow(['comparison', 'objective', 'seed', *keys])
    for label, runs in results.compared.items():
        for run in filter(Run.is_done, runs):
            # No spreadsheet may take a name for a formula.
            names = [
                f"'{name}" if name.startswith(tuple('=+-@\t\r')) else name
                for name in (label, run.name)
            ]
            values = [round(run.figures.get(key, nan), 4) for key in keys]
            writer.writerow([*names, run.seed, *values])
    return file.getvalue()
